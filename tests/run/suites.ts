import path from 'node:path';
import { INSTALLS } from '../../cli/folders.ts';
import { REPOSITORY } from '../../core/repository.ts';
import { WORKERD_IN_GATE } from './workerd-in-gate.ts';

/** The areas of `npm test`, which CI runs: the gate. */
export const GATE_AREAS = ['checks', 'fast', 'temporal', 'workerd', 'main-job'] as const;
/** The areas of `npm run test:all`: those of the gate, with workerd as a whole, and the long and the many. */
export const ALL_AREAS = [...GATE_AREAS, 'sglang', 'clients', 'sandboxes', 'runs', 'trainer', 'page'] as const;
export type Area = (typeof ALL_AREAS)[number];

/** One command that tests. `files` limits vitest to files whose paths contain one of them, and pytest to these; `without` are left out of pytest. */
export type Suite = { name: string; area: Area; inPython?: boolean } & (
  | { kind: 'check'; command: string[] }
  | { kind: 'vitest'; project: string; files?: readonly string[]; workers?: number; config?: string }
  | { kind: 'pytest'; marker: string; testSeconds: number; files?: readonly string[]; without?: readonly string[] }
);

const bin = (name: string): string => path.join(REPOSITORY, 'node_modules/.bin', name);
const check = (...names: string[]): string[] => [INSTALLS.node, INSTALLS.main, 'check', ...names];

/** The real files of each area. Each file with real parts is in exactly one (`suites.test.ts`). */
export const REAL_FILES: Partial<Record<Area, readonly string[]>> = {
  'main-job': ['tests/e2e/main-job.real.test.ts'],
  clients: ['tests/clients/', 'gateway/protocols/as-vllm.real.test.ts', 'tests/e2e/real-engine.real.test.ts'],
  sandboxes: ['activities/sandbox/', 'cli/attack/', 'tests/e2e/harbor.real.test.ts'],
  runs: [
    ...['interrupted', 'killed', 'operated', 'stack', 'two-of-each', 'verifiers', 'whole-model'].map(
      (name) => `tests/e2e/${name}.real.test.ts`,
    ),
    'bench/chaos/',
    'bench/relay/',
  ],
  trainer: ['tests/e2e/trl.real.test.ts', 'clients/trl/'],
  page: ['web/', 'cli/log/', 'deploy/'],
};

/** One engine at a time: beside a second vLLM, two cores are too few for limits of time to mean anything. */
const real = (area: Area, name: string = area): Suite => ({
  name,
  area,
  kind: 'vitest',
  project: 'real',
  workers: 1,
  files: REAL_FILES[area] ?? [],
});

/** Suites that need only the npm packages. They run while the rest is installed. */
export const whileInstalling = (all: boolean): Suite[] => [
  { name: 'types', area: 'checks', kind: 'check', command: [bin('tsc'), '--noEmit'] },
  { name: 'lint', area: 'checks', kind: 'check', command: [bin('oxlint'), '--deny-warnings'] },
  {
    name: 'format',
    area: 'checks',
    kind: 'check',
    command: [bin('prettier'), '--check', '--log-level', 'warn', '.'],
  },
  { name: 'workerd', area: 'workerd', kind: 'vitest', project: 'workerd', ...(!all && { files: WORKERD_IN_GATE }) },
];

/** Suites that take all processors, one after the other. */
export const FIRST: readonly Suite[] = [
  { name: 'fast', area: 'fast', kind: 'vitest', project: 'fast' },
  { name: 'temporal', area: 'temporal', kind: 'vitest', project: 'temporal' },
];

/** The file in Python that follows the main job: the lanes of `SIDE_BY_SIDE` shall end together. */
const FAMILIES = ['gpu-workers/trialgate_gpu/families_test.py'];

const python = (name: string, which: { files: readonly string[] } | { without: readonly string[] }): Suite => ({
  name,
  area: 'fast',
  kind: 'pytest',
  marker: '(not real and not processes) or gate',
  testSeconds: 60,
  inPython: true,
  ...which,
});

/**
 * Suites of two lanes that run side by side. The main job leaves a third of two processors idle, because vLLM starts and trials begin on one, and the
 * tests in Python need one. Beside the fast tests, which need two, both would take longer.
 */
export const SIDE_BY_SIDE: readonly (readonly Suite[])[] = [
  [real('main-job'), python('families', { files: FAMILIES })],
  [
    { name: 'ruff', area: 'checks', kind: 'check', command: check('ruff', 'ruff-format'), inPython: true },
    { name: 'licenses', area: 'checks', kind: 'check', command: check('npm-licenses', 'python-licenses') },
    python('python', { without: FAMILIES }),
  ],
];

/** The suites of the full set alone, one after the other. */
export const LAST: readonly Suite[] = [
  { name: 'sglang', area: 'sglang', kind: 'vitest', project: 'sglang' },
  real('clients'),
  real('sandboxes'),
  real('runs'),
  real('trainer', 'trl'),
  real('page'),
  { name: 'processes', area: 'trainer', kind: 'pytest', marker: 'processes', testSeconds: 300, inPython: true },
  { name: 'engines', area: 'trainer', kind: 'pytest', marker: 'real', testSeconds: 300, inPython: true },
];

/** Returns the command of a suite, or the one that runs these files of it again. */
export function commandOf(suite: Suite, again?: readonly string[]): string[] {
  switch (suite.kind) {
    case 'check':
      return suite.command;
    case 'vitest': {
      const reporter = path.join(import.meta.dirname, 'vitest-reporter.ts');
      const workers = again ? 1 : suite.workers;
      return [
        ...[bin('vitest'), 'run', '--project', suite.project, '--reporter=default', `--reporter=${reporter}`],
        ...(suite.config ? [`--config=${suite.config}`] : []),
        ...(workers ? [`--maxWorkers=${workers}`] : []),
        ...(again ?? suite.files ?? []),
      ];
    }
    case 'pytest': {
      const { files = ['gpu-workers'], without = [] } = suite;
      return [
        ...[INSTALLS.python, '-m', 'pytest', '-q', '-p', 'no:cacheprovider', '-p', 'pytest_events'],
        ...['-m', suite.marker, `--timeout=${suite.testSeconds}`],
        ...(again ?? [...files, ...without.map((file) => `--ignore=${file}`)]),
      ];
    }
  }
}
