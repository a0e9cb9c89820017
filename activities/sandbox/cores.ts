import { readFileSync } from 'node:fs';

/**
 * Keeps a command, and what it starts, on as many cores as `cpus` says: where there are no control groups, which also know
 * parts of a core. Empty where this process has no more cores than that.
 */
export function onCores(cpus: number): string[] {
  const all = allowedCores();
  const wanted = Math.max(1, Math.ceil(cpus));
  if (wanted >= all.length) return [];
  const first = Math.floor(Math.random() * all.length);
  const cores = Array.from({ length: wanted }, (_, index) => all[(first + index) % all.length]);
  return ['taskset', '--cpu-list', cores.join(',')];
}

/** From a list such as `0-3,8`. */
function allowedCores(): number[] {
  const list = /^Cpus_allowed_list:\s*(\S+)$/m.exec(readFileSync('/proc/self/status', 'utf8'))?.[1] ?? '';
  return list.split(',').flatMap((range) => {
    const [first = 0, last = first] = range.split('-').map(Number);
    return Array.from({ length: last - first + 1 }, (_, index) => first + index);
  });
}
