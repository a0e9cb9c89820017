import { readFileSync } from 'node:fs';

/**
 * Limits a command and its child processes to the number of cores in `cpus`. It is used where there are no control groups, which
 * can also limit parts of a core. The result is empty if this process has no more cores than that.
 */
export function onCores(cpus: number): string[] {
  const all = allowedCores();
  const wanted = Math.max(1, Math.ceil(cpus));
  if (wanted >= all.length) return [];
  const first = Math.floor(Math.random() * all.length);
  const cores = Array.from({ length: wanted }, (_, index) => all[(first + index) % all.length]);
  return ['taskset', '--cpu-list', cores.join(',')];
}

/** Reads a list such as `0-3,8`. */
function allowedCores(): number[] {
  const list = /^Cpus_allowed_list:\s*(\S+)$/m.exec(readFileSync('/proc/self/status', 'utf8'))?.[1] ?? '';
  return list.split(',').flatMap((range) => {
    const [first = 0, last = first] = range.split('-').map(Number);
    return Array.from({ length: last - first + 1 }, (_, index) => first + index);
  });
}
