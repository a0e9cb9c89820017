import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdir, readdir } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { text } from 'node:stream/consumers';
import { afterAll, beforeAll, expect, test, type TestContext } from 'vitest';
import { readRewards } from '../../activities/sandbox/read-rewards.ts';
import { loadTask } from '../../activities/tasks/load-task.ts';
import { INSTALLS } from '../../cli/folders.ts';
import { freePort } from '../../core/free-port.ts';
import { REPOSITORY } from '../../core/repository.ts';
import { readCalls } from '../../store/queries/read-calls.ts';
import { externalRuns } from '../support/harness/external-runs.ts';
import { useGatewayOnServer } from '../support/harness/gateways.ts';
import { harborPython, harborVariables, TRIALGATE } from '../support/harness/harbor.ts';
import { temporaryHome, writeFiles } from '../support/harness/sandbox-fixtures.ts';
import { until } from '../support/harness/until.ts';
import { useTemporal } from '../support/harness/use-temporal.ts';

const temporal = useTemporal();
const gateway = useGatewayOnServer();
const { withExternalRun, accessTo, readTrials } = externalRuns(temporal, gateway);

/** The Python that has Harbor, or why there is none. */
let python: { path: string } | { why: string };
let place: Awaited<ReturnType<typeof temporaryHome>>;

beforeAll(async () => {
  place = await temporaryHome();
  await mkdir(join(place.home, 'marks'));
  python = await harborPython(AbortSignal.timeout(600_000)).then(
    (path) => ({ path }),
    (error: unknown) => ({ why: String(error) }),
  );
});
afterAll(() => place[Symbol.asyncDispose]());

function pythonOr(skip: TestContext['skip']): string {
  return 'why' in python ? skip(python.why) : python.path;
}

/** Writes a task whose tests are this script, and returns its folder. */
async function task(name: string, tests: string, settings = ''): Promise<string> {
  const folder = join(place.home, 'tasks', name);
  await writeFiles(folder, {
    'task.toml': settings,
    'instruction.md': `Say hello to ${name}.`,
    'environment/Dockerfile': 'FROM ubuntu:24.04\nWORKDIR /app\n',
    'tests/test.sh': tests,
  });
  return folder;
}

const REWARD = 'test -s answer.txt && echo \'{"said": 1, "length": 0.5}\' > /logs/verifier/reward.json\n';

type Ended = { code: number | null; stdout: string; stderr: string };

/** Starts the program for a run, with the sandboxes of Trialgate. */
function start(path: string, runId: string, args: readonly string[]) {
  const child = spawn(
    path,
    [
      '-m',
      'trialgate_harbor',
      '--environment',
      'trialgate',
      '--environment-args',
      JSON.stringify({ trialgate: TRIALGATE }),
      ...args,
    ],
    {
      env: {
        ...harborVariables(place.home),
        MARKS: join(place.home, 'marks'),
        ...accessTo(runId),
      },
      stdio: ['ignore', 'pipe', 'pipe'],
      // A test that hangs must not leave the program behind.
      timeout: 600_000,
      killSignal: 'SIGINT',
    },
  );
  const ended: Promise<Ended> = Promise.all([text(child.stdout), text(child.stderr), once(child, 'exit')]).then(
    ([stdout, stderr, [code]]) => ({ code, stdout, stderr }),
  );
  return { child, ended };
}

/** Starts Harbor's server with a folder of its own, and ends it with all that it started. */
async function harborServer(path: string): Promise<{ url: string } & AsyncDisposable> {
  const port = await freePort('127.0.0.1');
  const args = ['serve', '--port', String(port), '--data-dir', join(place.home, 'harbor-server')];
  const child = spawn(join(dirname(path), 'harbor'), args, {
    env: { ...harborVariables(place.home), MARKS: join(place.home, 'marks') },
    stdio: 'ignore',
  });
  const ended = once(child, 'exit');
  const url = `http://127.0.0.1:${port}`;
  await until(async () => (await fetch(`${url}/agents`).catch(() => null))?.ok);
  return {
    url,
    [Symbol.asyncDispose]: async () => {
      child.kill('SIGTERM');
      await ended;
    },
  };
}

const program = (...given: Parameters<typeof start>): Promise<Ended> => start(...given).ended;

const agent = (name: string): string[] => ['--agent', `asking_agent:${name}`];

/** Returns how a run's trials ended, with the number of their calls. */
async function readEnds(runId: string) {
  return Promise.all(
    (await readTrials(runId)).map(async ({ id, task: named, outcome, rewards, reason }) => ({
      task: named,
      outcome,
      rewards,
      reason,
      calls: (await readCalls(gateway.db, { trialId: id, attempt: 1 })).length,
    })),
  );
}

const byTask = (one: { task: string | null }, other: { task: string | null }): number =>
  String(one.task).localeCompare(String(other.task));

const sandboxesLeft = async (): Promise<string[]> =>
  (await readdir(join(place.home, 'trialgate/sandboxes')).catch(() => [])).filter((name) => name.startsWith('served-'));

test('trials of Harbor are trained on with all rewards of their verifier, and no sandbox is left; a task without a network reaches the gateway while its agent runs alone', async ({
  skip,
}) => {
  const path = pythonOr(skip);
  const { port } = new URL(gateway.gateway.url);
  const isClosed = `if test -s answer.txt && ! (exec 3<>/dev/tcp/127.0.0.1/${port}) 2>/dev/null; then echo 1; else echo 0; fi > /logs/verifier/reward.txt`;
  const tasks = [
    await task('one', REWARD),
    await task('closed', isClosed, '[environment]\nnetwork_mode = "no-network"\n'),
  ];
  await withExternalRun({ groups_per_iteration: 2 }, async (runId, ended, world) => {
    const { code, stdout, stderr } = await program(path, runId, [...tasks, ...agent('AskingAgent'), '--groups', '2']);
    expect([code, stderr]).toEqual([0, '']);
    expect(stdout.trim().split('\n').toSorted()).toEqual([
      expect.stringMatching(/^group 1: (one|closed): 2 of 2 trials scored, mean reward 1\.[05]00, \d+ s$/),
      expect.stringMatching(/^group 2: (one|closed): 2 of 2 trials scored/),
      `run ${runId} is completed`,
    ]);
    await ended();
    expect(world.log).toContain('train 1');
    const scored = { outcome: 'scored', reason: null, calls: 1 };
    expect((await readEnds(runId)).toSorted(byTask)).toEqual([
      ...[1, 2].map(() => ({ task: 'closed', rewards: { reward: 1 }, ...scored })),
      ...[1, 2].map(() => ({ task: 'one', rewards: { said: 1, length: 0.5 }, ...scored })),
    ]);
  });
  expect(await sandboxesLeft()).toEqual([]);
});

test('trials on a server of Harbor are trained on, and a stopped program cancels them there', async ({ skip }) => {
  const path = pythonOr(skip);
  const tasks = [await task('there', REWARD)];
  await using server = await harborServer(path);
  await withExternalRun({}, async (runId) => {
    const { code, stderr } = await program(path, runId, [...tasks, ...agent('AskingAgent'), '--server', server.url]);
    expect([code, stderr]).toEqual([0, '']);
    expect(await readEnds(runId)).toMatchObject(
      [1, 2].map(() => ({ task: 'there', outcome: 'scored', rewards: { said: 1, length: 0.5 }, calls: 1 })),
    );
  });
  await withExternalRun({}, async (runId) => {
    const given = [...tasks, ...agent('SleepingAgent'), '--groups', '1', '--server', server.url];
    const { child, ended } = start(path, runId, given);
    await until(async () => (await readEnds(runId)).filter(({ calls }) => calls === 1).length === 2);
    child.kill('SIGTERM');
    expect(await ended).toMatchObject({ code: 143 });
  });
  await until(async () => (await sandboxesLeft()).length === 0);
});

test('a start that failed is made again, an agent that has begun is not, and a trial without a valid reward is discarded with Harbor’s reason', async ({
  skip,
}) => {
  const path = pythonOr(skip);
  const tasks = [
    await task('slow-setup', REWARD),
    await task('lost-server', REWARD),
    await task('muted', `if ! test -e muted; then ${REWARD}fi\n`),
  ];
  await withExternalRun({ groups_per_iteration: 3 }, async (runId) => {
    const { code, stdout } = await program(path, runId, [...tasks, ...agent('TroubledAgent'), '--groups', '3']);
    expect(code).toBe(0);
    for (const line of [
      /trial \d of slow-setup did not start and begins again: AgentSetupTimeoutError/,
      /discarded trial \d of lost-server: Timeout: the model's server gave no answer/,
      /discarded trial \d of muted: RewardFileNotFoundError: No reward file found/,
    ])
      expect(stdout).toMatch(line);
    const all = await readEnds(runId);
    // The run may have opened another group in the place of one that lost a trial.
    expect(all.map(({ calls }) => calls)).toEqual(all.map(() => 1));
    expect(all.filter(({ outcome }) => outcome !== 'scored').toSorted(byTask)).toMatchObject([
      { task: 'lost-server', outcome: 'cancelled', reason: expect.stringContaining('Timeout') },
      { task: 'muted', outcome: 'cancelled', reason: expect.stringContaining('RewardFileNotFoundError') },
    ]);
  });
});

test('a program that is told to stop ends its agents, removes their sandboxes and gives the group back', async ({
  skip,
}) => {
  const path = pythonOr(skip);
  const folder = await task('asleep', REWARD);
  await withExternalRun({}, async (runId) => {
    const { child, ended } = start(path, runId, [folder, ...agent('SleepingAgent'), '--groups', '1']);
    await until(async () => (await readEnds(runId)).filter(({ calls }) => calls === 1).length === 2);
    child.kill('SIGTERM');
    expect(await ended).toMatchObject({ code: 143 });
    expect((await readEnds(runId)).slice(0, 2)).toMatchObject(
      [1, 2].map(() => ({ outcome: 'cancelled', reason: expect.stringContaining('the program stopped') })),
    );
  });
  expect(await sandboxesLeft()).toEqual([]);
});

test('when the process that gives the sandboxes is killed, its trials are discarded and the next group has another', async ({
  skip,
}) => {
  const path = pythonOr(skip);
  const folder = await task('lost', REWARD);
  await withExternalRun({}, async (runId) => {
    const { code, stdout } = await program(path, runId, [folder, ...agent('LostSandbox'), '--groups', '1']);
    expect([code, stdout]).toEqual([0, expect.stringMatching(/discarded trial \d of lost: SandboxUnavailableError: /)]);
    const all = await readEnds(runId);
    expect(all.filter(({ outcome }) => outcome === 'scored')).toHaveLength(2);
    for (const { outcome, reason } of all)
      if (outcome !== 'scored') expect([outcome, reason]).toEqual(['cancelled', expect.stringContaining('Sandbox')]);
  });
});

test('what cannot be run is refused with what to do, and a group that was claimed is given back', async ({ skip }) => {
  const path = pythonOr(skip);
  const folder = await task('fine', REWARD);
  const services = await task('services', REWARD);
  await writeFiles(services, { 'environment/docker-compose.yaml': 'services: {}' });
  const separate = await task('separate', REWARD, '[verifier]\nenvironment_mode = "separate"\n');
  await withExternalRun({}, async (runId) => {
    for (const [args, code, message] of [
      [[join(place.home, 'nowhere')], 2, 'neither it nor a folder in it has a task.toml'],
      [[folder, '--agent', 'unheard-of'], 2, 'Agent name unheard-of is not valid'],
      [[folder, '--agent', 'cursor-cli'], 2, 'Harbor cannot set the URL at which it asks its model'],
      [[folder, '--agent-args', '{'], 2, 'argument --agent-args: no JSON'],
      [[services, ...agent('AskingAgent')], 2, 'the task wants services of its own'],
      [[separate, ...agent('AskingAgent')], 2, 'its tests want an environment of their own'],
      [[folder, '--environment', 'docker'], 2, 'start the deployment with --gateway-host'],
    ] as const)
      expect(await program(path, runId, args)).toMatchObject({ code, stderr: expect.stringContaining(message) });
    expect((await readEnds(runId))[0]).toMatchObject({ outcome: 'cancelled' });
  });
  const without = await program(INSTALLS.python, 'any', [folder]);
  expect(without).toMatchObject({ code: 3, stderr: expect.stringContaining('Harbor 0.26 is not installed') });
});

/** Runs Harbor's own reader on folders. */
async function readByHarbor(path: string, what: 'rewards' | 'tasks', folders: readonly string[]): Promise<unknown[]> {
  const script = join(REPOSITORY, 'tests/support/scenarios/harbor/read_folders.py');
  const child = spawn(path, [script, what, ...folders], { env: harborVariables(place.home) });
  const [stdout, stderr] = await Promise.all([text(child.stdout), text(child.stderr), once(child, 'exit')]);
  expect(stdout, stderr).not.toBe('');
  return JSON.parse(stdout);
}

const REWARDS: Record<string, string>[] = [
  { 'reward.txt': '0.5' },
  { 'reward.txt': ' 1_000.5\n' },
  { 'reward.txt': '-1e-3' },
  { 'reward.txt': '.5' },
  { 'reward.txt': '5.' },
  { 'reward.txt': '\uFEFF1' },
  { 'reward.txt': '' },
  { 'reward.txt': 'nan' },
  { 'reward.txt': '1e999' },
  { 'reward.txt': '0x1' },
  { 'reward.txt': 'True' },
  { 'reward.json': '{"a": true, "b": false, "c": 2}' },
  { 'reward.json': '{"a": "1"}' },
  { 'reward.json': '{"a": null}' },
  { 'reward.json': '{"a": NaN}' },
  { 'reward.json': '{"a": 1e999}' },
  { 'reward.json': '\uFEFF{"a": 1}' },
  { 'reward.json': '', 'reward.txt': '1' },
  { 'reward.json': '{"a": 0.75}', 'reward.txt': '0' },
  { 'reward.json': '{"a": 1, "a": 2}' },
  {},
];

test('rewards are read as Harbor’s own code reads them', async ({ skip }) => {
  const path = pythonOr(skip);
  const folders = REWARDS.map((_, i) => join(place.home, 'rewards', String(i)));
  for (const [i, files] of REWARDS.entries()) {
    await mkdir(folders[i] ?? '', { recursive: true });
    await writeFiles(folders[i] ?? '', files);
  }
  const own = await Promise.all(
    folders.map((folder) =>
      readRewards(folder, '').then(
        ({ rewards }) => rewards,
        () => null,
      ),
    ),
  );
  // Python compares True with 1.
  const theirs = JSON.parse(JSON.stringify(await readByHarbor(path, 'rewards', folders)), (_, value) =>
    typeof value === 'boolean' ? Number(value) : value,
  );
  expect(own).toEqual(theirs);
});

const TASKS = [
  { instruction: 'Do it.', settings: '' },
  { instruction: '<!-- canary 1 -->\n# a CANARY\n\n\n  Do it.\n\n# canary\n', settings: '[task]\nname = "org/name"\n' },
  { instruction: '\n\n  Do it.', settings: '[verifier]\ntimeout_sec = 5\nenv = {A = "b"}\n' },
  {
    instruction: '# canary\r\nDo it.\r\n',
    settings: '[environment]\ncpus = 2.0\nmemory = "1.5G"\nstorage = "512M"\nos = "Linux"\n',
  },
  { instruction: 'x', settings: '[environment]\ncpus = 0.5\nmemory_mb = 100\nstorage_mb = 200\n' },
];

test('tasks are read as Harbor’s own code reads them', async ({ skip }) => {
  const path = pythonOr(skip);
  const folders = await Promise.all(
    TASKS.map(async ({ instruction, settings }, i) => {
      const folder = await task(`read-${i}`, 'true', settings);
      await writeFiles(folder, { 'instruction.md': instruction });
      return folder;
    }),
  );
  const own = await Promise.all(
    folders.map(async (folder) => {
      const { name, instruction, verifier, environment } = await loadTask(folder, { hasImages: true });
      const { cpus, memoryMb: memory_mb, storageMb: storage_mb } = environment;
      const { timeoutSec: verifier_seconds, env: verifier_env } = verifier;
      return { name, instruction, verifier_seconds, verifier_env, cpus, memory_mb, storage_mb };
    }),
  );
  // What Harbor leaves to its environments has a default here.
  const defaults = { cpus: 1, memory_mb: 2048, storage_mb: 10_240 };
  const theirs = (await readByHarbor(path, 'tasks', folders)).map((each) =>
    Object.fromEntries(
      Object.entries(each as object).map(([key, value]) => [key, value ?? defaults[key as keyof typeof defaults]]),
    ),
  );
  expect(own).toEqual(theirs);
});
