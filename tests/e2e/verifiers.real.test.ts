import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdir, writeFile } from 'node:fs/promises';
import { homedir } from 'node:os';
import { delimiter, join } from 'node:path';
import { createInterface } from 'node:readline';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect, test, type TestContext } from 'vitest';
import type { Environment } from '../../activities/environments/environment.ts';
import { pythonEnvironment } from '../../activities/environments/python.ts';
import { REPOSITORY } from '../../core/repository.ts';
import { readCalls } from '../../store/queries/read-calls.ts';
import { externalRuns } from '../support/harness/external-runs.ts';
import { useGatewayOnServer } from '../support/harness/gateways.ts';
import { temporaryHome } from '../support/harness/sandbox-fixtures.ts';
import { useTemporal } from '../support/harness/use-temporal.ts';

const temporal = useTemporal();
const gateway = useGatewayOnServer();
const { withExternalRun, accessTo, readTrials } = externalRuns(temporal, gateway);

const SCENARIOS = join(REPOSITORY, 'tests/support/scenarios/verifiers');
const EXAMPLE = join(REPOSITORY, 'examples/verifiers');
const PACKAGES = ['verifiers[ta,openenv]>=0.4,<0.5', 'uv'];

/** The packages, or why they cannot be had. */
let installed: Environment | string = 'not installed';
let place: Awaited<ReturnType<typeof temporaryHome>>;

beforeAll(async () => {
  place = await temporaryHome();
  installed = await pythonEnvironment(
    { requirements: PACKAGES },
    { home: place.home, signal: AbortSignal.timeout(600_000) },
  ).catch((error: unknown) => String(error));
  // The words of a game, which NLTK would download.
  const words = join(place.home, 'nltk_data/corpora/words');
  await mkdir(words, { recursive: true });
  await writeFile(join(words, 'en-basic'), 'light\nhouse\nriver\n');
});
afterAll(() => place[Symbol.asyncDispose]());

type Skip = TestContext['skip'];

function packages(skip: Skip): Environment {
  return typeof installed === 'string'
    ? skip(`${PACKAGES.join(', ')} cannot be installed from the package index: ${installed}`)
    : installed;
}

/** The variables by which this machine reaches the package index. */
const INDEX = Object.fromEntries(
  Object.entries(process.env).filter(([name]) => /^(UV_|PIP_|SSL_CERT_|(https?|all|no)_proxy$)/i.test(name)),
);

/** Returns the program's environment: it has a home of its own and the user's cache of packages, and uv downloads no Python. */
const environmentOf = ({ path }: Environment) => ({
  ...INDEX,
  PATH: [...path, process.env['PATH']].join(delimiter),
  HOME: place.home,
  NLTK_DATA: join(place.home, 'nltk_data'),
  UV_CACHE_DIR: process.env['UV_CACHE_DIR'] ?? join(homedir(), '.cache/uv'),
  UV_PYTHON_DOWNLOADS: 'never',
  PYTHONPATH: [join(REPOSITORY, 'clients/python'), SCENARIOS, EXAMPLE].join(delimiter),
});

type Ended = { code: number; stdout: string; stderr: string };

/** Runs the program for a run. */
async function program(python: Environment, runId: string, args: string[]): Promise<Ended> {
  return promisify(execFile)(python.python ?? '', ['-m', 'trialgate_verifiers', ...args], {
    env: { ...environmentOf(python), ...accessTo(runId) },
    // A test that hangs must not leave the program behind.
    timeout: 600_000,
    killSignal: 'SIGINT',
  }).then(
    (output) => ({ code: 0, ...output }),
    (error: Ended) => error,
  );
}

/** Trains one step on an environment, and returns its trials with their calls. */
async function trainOn(python: Environment, args: string[]) {
  let done: { task: string | null; outcome: string | null; rewards: Record<string, number> | null; calls: number }[] =
    [];
  await withExternalRun({}, async (runId, ended, world) => {
    const { code, stdout, stderr } = await program(python, runId, args);
    expect([code, stderr]).toEqual([0, expect.any(String)]);
    expect(stdout).toContain(`run ${runId} is completed`);
    await ended();
    expect(world.log).toContain('train 1');
    const all = await readTrials(runId);
    done = await Promise.all(
      all.map(async ({ id, task, outcome, rewards }) => ({
        task,
        outcome,
        rewards,
        calls: (await readCalls(gateway.db, { trialId: id, attempt: 1 })).length,
      })),
    );
  });
  return done;
}

test('the tasks of a verifiers environment come in an order that follows from the seed, and rewards with a weight are reported', async ({
  skip,
}) => {
  const python = packages(skip);
  await withExternalRun({ groups_per_iteration: 3 }, async (runId, ended) => {
    const { code, stdout, stderr } = await program(python, runId, ['replies', '--seed', '7', '--groups', '1']);
    expect([code, stderr]).toEqual([0, '']);
    const lines = stdout.trim().split('\n');
    expect(lines).toEqual([
      expect.stringMatching(/^group 1: [abc]: 2 of 2 trials scored, mean reward \d+\.\d{3}, \d+ s$/),
      expect.stringMatching(/^group 2: [abc]: 2 of 2 trials scored/),
      expect.stringMatching(/^group 3: [abc]: 2 of 2 trials scored/),
      `run ${runId} is completed`,
    ]);
    await ended();
    const all = await readTrials(runId);
    expect(all.map(({ task }) => task)).toEqual(['c', 'c', 'b', 'b', 'a', 'a']);
    const lengths = all.map(({ rewards }) => rewards?.['length']);
    expect(new Set(lengths).size).toBe(1);
    expect(all.map(({ rewards }) => Object.keys(rewards ?? {}).toSorted())).toEqual(
      all.map(() => ['length', 'serial']),
    );
    expect(all.map(({ rewards }) => rewards?.['serial'] ?? -1).toSorted()).toEqual([0, 1, 2, 3, 4, 5]);
    for (const { id } of all)
      expect(await readCalls(gateway.db, { trialId: id, attempt: 1 })).toMatchObject([{ status: 'completed' }]);
  });
});

test('a rollout that raises is discarded with its reason, and the others of its group count', async ({ skip }) => {
  const python = packages(skip);
  await withExternalRun({}, async (runId) => {
    const { code, stdout } = await program(python, runId, ['replies', '--args', '{"taskset": {"names": ["broken"]}}']);
    expect([code, stdout]).toEqual([
      0,
      expect.stringMatching(/discarded trial \d of broken: TaskError: .*the reward broke/),
    ]);
    const all = await readTrials(runId);
    expect(all.map(({ outcome }) => outcome).toSorted()).toEqual(['cancelled', 'scored']);
    expect(all.find(({ outcome }) => outcome === 'cancelled')?.reason).toContain('the reward broke');
  });
});

test('the turns of an environment that answers the policy are calls of one trial', async ({ skip }) => {
  expect(await trainOn(packages(skip), ['dialogue'])).toEqual(
    [1, 2].map(() => ({ task: 'greeting', outcome: 'scored', rewards: { turns: 2 }, calls: 2 })),
  );
});

test('examples/verifiers: its rewards are reported with their weights', async ({ skip }) => {
  expect(await trainOn(packages(skip), ['sums', '--limit', '1'])).toMatchObject(
    [1, 2].map(() => ({
      task: '2 + 2',
      outcome: 'scored',
      rewards: { correct: 0, short: expect.any(Number) },
      calls: 1,
    })),
  );
});

test('a game of TextArena is trained on', async ({ skip }) => {
  const game = '{"taskset": {"game": "Hangman-v0"}, "player": {"max_turns": 3}}';
  const done = await trainOn(packages(skip), ['textarena', '--args', game]);
  expect(done).toMatchObject(
    [1, 2].map(() => ({ task: 'Hangman-v0#0', outcome: 'scored', rewards: { game_reward: expect.any(Number) } })),
  );
  expect(done.every(({ calls }) => calls > 0)).toBe(true);
});

test('a server of OpenEnv is trained on', async ({ skip }) => {
  const python = packages(skip);
  const server = spawn(python.python ?? '', [join(SCENARIOS, 'openenv_server.py')], {
    env: environmentOf(python),
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  try {
    const [url] = (await once(createInterface(server.stdout), 'line')) as [string];
    const args = JSON.stringify({ taskset: { base_url: url, resets: [{ seed: 1 }] } });
    expect(await trainOn(python, ['openenv', '--args', args])).toEqual(
      [1, 2].map(() => ({ task: `${url}#0`, outcome: 'scored', rewards: { openenv_reward: 1 }, calls: 2 })),
    );
  } finally {
    server.kill();
  }
});

test('a resource server of NeMo Gym is trained on', async ({ skip }) => {
  const python = packages(skip);
  const found = await promisify(execFile)('uv', ['python', 'find', '>=3.12,<3.14'], {
    env: environmentOf(python),
  }).catch(() => null);
  if (!found) skip('NeMo Gym needs Python 3.12 or 3.13 on the PATH');
  expect(await trainOn(python, ['tool_call'])).toEqual(
    [1, 2].map(() => ({ task: 'tool_call:0', outcome: 'scored', rewards: { nemo_gym: 1 }, calls: 1 })),
  );
});

test('what cannot be trained on is refused with what to do, and the group that was claimed is given back', async ({
  skip,
}) => {
  const python = packages(skip);
  await withExternalRun({}, async (runId) => {
    const { code, stderr } = await program(python, runId, ['unrewarded']);
    expect([code, stderr]).toEqual([2, expect.stringContaining('environment unrewarded gives no reward')]);
    expect((await readTrials(runId))[0]).toMatchObject({ outcome: 'cancelled' });
    const bash = '{"agent": {"harness": {"id": "bash"}}}';
    for (const [args, exit, message] of [
      [['missing'], 3, "taskset 'missing' not found"],
      [['replies', '--args', '{"taskset": {"colour": 1}}'], 2, 'taskset.colour: Extra inputs are not permitted'],
      [['replies', '--args', '{'], 2, 'argument --args: no JSON'],
      [['replies', '--args', bash], 2, 'the harness bash runs commands of the model: say where'],
      [['replies', '--groups', '0'], 2, 'argument --groups: must be a number from 1'],
    ] as const)
      expect(await program(python, runId, [...args])).toMatchObject({
        code: exit,
        stderr: expect.stringContaining(message),
      });
  });
});
