import { readFileSync } from 'node:fs';
import type { Isolation } from './isolation.ts';
import { processTable } from './process-table.ts';

export type Limits = {
  seconds: number;
  /** Returns the seconds so far that do not count. They extend the limit to at most twice `seconds`. */
  uncounted?: () => Promise<number>;
  /** The most memory of all its processes, and of one allocation. */
  memoryMb: number;
  /** The most bytes of stdout and stderr together. */
  outputBytes: number;
  /** True: past that the output is cut and the process goes on. Else the process is ended. */
  cutsOutput?: boolean;
  processes: number;
  /** The processor time, in cores. */
  cpus: number;
  /** The size limit for the largest file, and for all files of the sandbox together. */
  storageMb: number;
};

/** The limit of time of a process that has none. A timer of Node waits 24 days at most. */
export const LONGEST_SECONDS = 20 * 24 * 3600;

/** The most descriptors of one process. With many more, agents could make counting them take seconds. */
export const DESCRIPTORS = 4096;

/**
 * Returns the command with a shell before it that sets resource limits. It limits data, not address space, because Node and Go reserve far
 * more address space than they use. POSIX shells call the limit on processes -u or -p.
 */
export function limited(
  argv: string[],
  { memoryMb, processes, storageMb }: Limits,
  isolation: Isolation,
  uid: number | null,
): string[] {
  const tasks = processes + (isolation.kind === 'none' ? othersOfThisUser() : 0);
  const script = [
    'ulimit -c 0',
    `ulimit -d ${Math.ceil(memoryMb * 1024)}`,
    `ulimit -f ${Math.ceil(storageMb * 2048)}`,
    `{ ulimit -p ${tasks} || ulimit -u ${tasks}; } 2>/dev/null`,
    // This fails if the limit is lower already.
    `ulimit -n ${DESCRIPTORS} 2>/dev/null`,
    'exec "$@"',
  ];
  return [...asUser(isolation, uid), '/bin/sh', '-c', script.join('\n'), 'sh', ...argv];
}

/** Returns the same limits by their names in Python's `resource`, in its units. */
export const resourceLimits = ({ memoryMb, processes, storageMb }: Limits): Record<string, number> => ({
  RLIMIT_CORE: 0,
  RLIMIT_DATA: Math.ceil(memoryMb * 2 ** 20),
  RLIMIT_FSIZE: Math.ceil(storageMb * 2 ** 20),
  RLIMIT_NPROC: processes,
  RLIMIT_NOFILE: DESCRIPTORS,
});

/** bubblewrap does the same. Setuid programs of root then give the sandbox's user no rights. */
function asUser({ kind }: Isolation, uid: number | null): string[] {
  if (kind === 'bubblewrap' || uid === null) return [];
  return ['setpriv', `--reuid=${uid}`, `--regid=${uid}`, '--clear-groups', '--no-new-privs', '--'];
}

/** Without a user or a namespace of its own, the sandbox's processes are counted together with all others of the user. */
function othersOfThisUser(): number {
  const uid = process.getuid?.();
  const threads = processTable()
    .filter((row) => row.uid === uid)
    .reduce((sum, row) => sum + row.threads, 0);
  return threads + 512;
}

/**
 * Limits a command and its child processes to the number of cores in `cpus`. It is used where there are no control groups, which
 * can also limit parts of a core. The result is empty if this process has no more cores than that.
 */
export function onCores(cpus: number): string[] {
  const cores = coresFor(cpus);
  return cores.length === 0 ? [] : ['taskset', '--cpu-list', cores.join(',')];
}

/** Returns as many cores of this process, the first at random. It is empty if this process has no more. */
export function coresFor(cpus: number): number[] {
  const all = allowedCores();
  const wanted = Math.max(1, Math.ceil(cpus));
  if (wanted >= all.length) return [];
  const first = Math.floor(Math.random() * all.length);
  return Array.from({ length: wanted }, (_, index) => all[(first + index) % all.length] ?? first);
}

/** Reads a list such as `0-3,8`. */
function allowedCores(): number[] {
  const list = /^Cpus_allowed_list:\s*(\S+)$/m.exec(readFileSync('/proc/self/status', 'utf8'))?.[1] ?? '';
  return list.split(',').flatMap((range) => {
    const [first = 0, last = first] = range.split('-').map(Number);
    return Array.from({ length: last - first + 1 }, (_, index) => first + index);
  });
}
