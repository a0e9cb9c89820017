import { globSync, readFileSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { defineConfig } from 'vitest/config';
import { deviceOf } from './cli/supervisor/device.ts';
import { LongestFirst } from './tests/run/longest-first.ts';

const filesWith = (pattern: RegExp, files: string): string[] =>
  globSync(files, { cwd: import.meta.dirname, exclude: ['**/node_modules/**'] }).filter((file) =>
    pattern.test(readFileSync(`${import.meta.dirname}/${file}`, 'utf8')),
  );

/** The tests that talk to a gateway which the harness starts: each runs with it on Node and in workerd. */
const overHttp = filesWith(
  /use(Shared)?(Token|Toy)?Gateways?(OnServer)?\(|new TestGateway|startTestGateway/,
  '{gateway,tests/clients,tests/support}/**/*.test.ts',
);

/** The tests that hold for each kind of engine: each runs in front of a toy of vLLM's and of SGLang's routes. */
const overEngines = filesWith(/use(Shared)?ToyGateway\(/, 'gateway/**/*.test.ts');

/** The tests that start Temporal. They wait for timers and polls for most of their time, so the fast tier does without them. */
const onTemporal = filesWith(/useTemporal\(|startTemporal\(/, '**/*.test.ts').filter(
  (file) => !file.endsWith('.real.test.ts'),
);

/** The tests that start Python, which `npm run test:fast` leaves out where it is not installed. */
const needPython = process.env['TRIALGATE_TEST_WITHOUT_PYTHON']
  ? filesWith(/INSTALLS\.python|killLoggerPrograms|useTrlCases/, '**/*.test.ts')
  : [];

/** The number of workers for tests that wait as much as they compute. On 2 cores three leave the processors idle for a fifth of the time. */
const MORE_WORKERS = Math.max(4, availableParallelism());

const SIGNAL = ['tests/support/harness/signal-setup.ts'];
const SETUPS = ['tests/support/harness/postgres-setup.ts', 'tests/support/harness/heavy-thread-setup.ts'];

/** Limits of time: only what hangs reaches them. What a test awaits ends before the test does, so that it says what it waited for. */
const limits = (seconds: number) => ({
  testTimeout: seconds * 1000,
  hookTimeout: 180_000,
  expect: { poll: { timeout: seconds * 750 } },
});

export default defineConfig({
  test: {
    maxWorkers: '100%',
    sequence: { sequencer: LongestFirst },
    projects: [
      {
        test: {
          name: 'fast',
          include: [
            '{core,gateway,store,activities,workflows,cli,clients,agents,tasks,examples,deploy,bench,tests,web}/**/*.test.ts',
          ],
          exclude: ['**/*.real.test.ts', '**/*.workerd.test.ts', '**/node_modules/**', ...onTemporal, ...needPython],
          setupFiles: SIGNAL,
          globalSetup: SETUPS,
          isolate: false,
          maxWorkers: MORE_WORKERS,
          ...limits(60),
        },
      },
      {
        test: {
          name: 'temporal',
          include: onTemporal,
          setupFiles: SIGNAL,
          globalSetup: [...SETUPS, 'tests/support/harness/temporal-setup.ts'],
          isolate: false,
          maxWorkers: MORE_WORKERS,
          ...limits(90),
        },
      },
      {
        test: {
          name: 'workerd',
          include: [...overHttp, '{gateway,bench,tests}/**/*.workerd.test.ts'],
          exclude: ['**/*.real.test.ts', '**/node_modules/**'],
          env: { TRIALGATE_TEST_RUNTIME: 'workerd' },
          setupFiles: SIGNAL,
          globalSetup: ['tests/support/harness/postgres-setup.ts', 'tests/support/harness/workerd-setup.ts'],
          isolate: false,
          // Wrangler takes its time to bundle and to start.
          ...limits(120),
        },
      },
      {
        test: {
          name: 'sglang',
          include: overEngines,
          env: { TRIALGATE_TEST_ENGINE: 'sglang' },
          setupFiles: SIGNAL,
          globalSetup: SETUPS,
          isolate: false,
          ...limits(60),
        },
      },
      {
        test: {
          name: 'real',
          include: ['**/*.real.test.ts'],
          setupFiles: SIGNAL,
          globalSetup: ['tests/support/harness/postgres-setup.ts'],
          exclude: ['**/node_modules/**'],
          // One GPU holds one engine at a time.
          fileParallelism: deviceOf('auto') === 'cpu',
          maxWorkers: 2,
          sequence: { groupOrder: 1 },
          testTimeout: 300_000,
          // A hook starts what the tests of a file share, and some run all clients in it.
          hookTimeout: 900_000,
        },
      },
    ],
  },
});
