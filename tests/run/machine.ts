import { mkdirSync, readFileSync } from 'node:fs';
import { availableParallelism, loadavg, tmpdir } from 'node:os';
import { TrialgateError } from '../../core/errors.ts';
import { INSTALLS } from '../../cli/folders.ts';
import { freeGigabytes } from '../../cli/prerequisites.mjs';

/** What a machine has for tests. `load` is the average number of waiting or running processes of the last minute. */
export type Machine = { cores: number; load: number; memoryGb: number; diskGb: number; temporaryGb: number };

export const thisMachine = (): Machine => {
  mkdirSync(INSTALLS.root, { recursive: true });
  return {
    cores: availableParallelism(),
    load: loadavg()[0] ?? 0,
    memoryGb: availableMemory(),
    diskGb: freeGigabytes(INSTALLS.root),
    temporaryGb: freeGigabytes(tmpdir()),
  };
};

/** With real parts, vLLM, the trainer, PostgreSQL and Temporal run together. */
const NEEDED = {
  cores: 2,
  memoryGb: { fast: 3, real: 8 },
  diskGb: { fast: 1, real: 3 },
  temporaryGb: { fast: 2, real: 5 },
} as const;
/** The machine of a CI is noisy. With more than this for each core, limits of time say nothing. */
const MOST_LOAD_PER_CORE = 12;

/**
 * Refuses a machine on which the tests would fail for lack of something.
 * @throws TrialgateError `missing_prerequisite` with all that is too little
 */
export function requireMachine(machine: Machine, parts: 'fast' | 'real'): void {
  const { cores, load, memoryGb, diskGb, temporaryGb } = machine;
  const most = MOST_LOAD_PER_CORE * cores;
  const lacks = [
    cores < NEEDED.cores && `${cores} processor, and ${NEEDED.cores} are needed`,
    load > most && `a load of ${load.toFixed(1)}, and at most ${most} is bearable on ${cores} processors`,
    ...(
      [
        ['memory available', memoryGb, NEEDED.memoryGb[parts]],
        ['free on the disk of this repository', diskGb, NEEDED.diskGb[parts]],
        [`free on the disk of ${tmpdir()}`, temporaryGb, NEEDED.temporaryGb[parts]],
      ] as const
    ).map(([what, has, needed]) => has < needed && `${has.toFixed(1)} GB ${what}, and ${needed} GB are needed`),
  ].filter((lack) => lack !== false);
  if (lacks.length === 0) return;
  throw new TrialgateError(
    'missing_prerequisite',
    `the tests do not begin, because this machine has too little: ${lacks.join('; ')}. End other work or free space, or use --any-machine to try all the same`,
  );
}

/** Returns the gigabytes that the kernel can give to new processes. */
function availableMemory(): number {
  const kilobytes = /^MemAvailable:\s+(\d+) kB$/m.exec(readFileSync('/proc/meminfo', 'utf8'))?.[1];
  return (Number(kilobytes ?? 0) * 1024) / 1e9;
}

/** Returns the machine in words, for a table of results. */
export function machineInWords({ cores, memoryGb }: Machine): string {
  const model = /^model name\s*: (.+)$/m.exec(readFileSync('/proc/cpuinfo', 'utf8'))?.[1] ?? 'unknown processor';
  return `${cores} cores (${model}), ${Math.round(memoryGb)} GB of memory available`;
}
