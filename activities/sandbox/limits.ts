import type { Isolation } from './isolation.ts';
import { processTable } from './process-table.ts';

export type Limits = {
  seconds: number;
  /** Of the whole tree; also what one process may allocate. */
  memoryMb: number;
  /** stdout and stderr together. */
  outputBytes: number;
  processes: number;
  /** The largest file. */
  fileMb: number;
};

/**
 * The command behind a shell that sets resource limits. Data, not address space, is limited: Node and Go reserve far
 * more of that than they use. POSIX shells call the limit on processes -u or -p.
 */
export function limited(argv: string[], { memoryMb, processes, fileMb }: Limits, isolation: Isolation): string[] {
  const tasks = processes + (isolation.kind === 'none' ? othersOfThisUser() : 0);
  const script = [
    'ulimit -c 0',
    `ulimit -d ${Math.ceil(memoryMb * 1024)}`,
    `ulimit -f ${Math.ceil(fileMb * 2048)}`,
    `{ ulimit -p ${tasks} || ulimit -u ${tasks}; } 2>/dev/null`,
    'exec "$@"',
  ];
  // bubblewrap does the same: programs of root with the setuid bit give the sandbox's user no rights.
  const noNewRights = isolation.kind === 'user' ? ['setpriv', '--no-new-privs', '--'] : [];
  return [...noNewRights, '/bin/sh', '-c', script.join('\n'), 'sh', ...argv];
}

/** Without a user or namespace of its own, a sandbox's processes are counted together with all of the user's. */
function othersOfThisUser(): number {
  const uid = process.getuid?.();
  const threads = processTable()
    .filter((row) => row.uid === uid)
    .reduce((sum, row) => sum + row.threads, 0);
  return threads + 512;
}
