import { and, eq } from 'drizzle-orm';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest';
import { isolation } from '../../activities/sandbox/isolation.ts';
import { TrialgateClient } from '../../clients/typescript/client.ts';
import { iterations, replicas, runs, trials } from '../../store/schema.ts';
import { writeState } from '../supervisor/state.ts';
import { FakeEngine } from '../../tests/support/fakes/fake-engine.ts';
import { resolveConfig } from '../config/resolve.ts';
import { oneVerb } from './one-verb.ts';
import { operateInThread } from './operate-in-thread.ts';
import { FakeWorld } from '../../tests/support/fakes/fake-activities.ts';
import { GatewayProcess } from '../../tests/support/harness/gateway-process.ts';
import { until } from '../../tests/support/harness/until.ts';
import { useDatabase } from '../../tests/support/harness/use-database.ts';
import { startTemporal, stopTemporal } from '../../tests/support/harness/workflow-worker.ts';
import { runWithVersion } from '../../tests/support/scenarios/run-with-version.ts';
import { Stage, hold } from '../../tests/histories/stage.ts';

const ADMIN_KEY = 'the admin key';
const SECRET = 'a secret of sixteen characters';
const store = useDatabase();
/** A server of its own, because a gateway uses the namespace that a deployment has. */
let environment: Awaited<ReturnType<typeof startTemporal>>;
let home: string;
let stage: Stage;

beforeAll(async () => {
  environment = await startTemporal();
  home = await mkdtemp(join(tmpdir(), 'trialgate-verbs-'));
  stage = new Stage({ environment, db: store.db, home, task: resolve('tasks/train') });
});
afterAll(async () => {
  await stopTemporal(environment);
  await rm(home, { recursive: true });
});

/** Starts `trialgate gateway`, as a deployment does, and returns a client of it. */
async function clientOf(temporal = environment.address): Promise<TrialgateClient> {
  const gateway = await startGateway(ADMIN_KEY, temporal);
  return new TrialgateClient({ baseUrl: gateway.url, adminKey: ADMIN_KEY });
}

async function startGateway(
  adminKey: string | null,
  temporal: string,
  engine = 'http://127.0.0.1:9',
): Promise<GatewayProcess> {
  const gateway = await new GatewayProcess({
    engines: [engine],
    databaseUrl: store.postgres.url,
    adminKey,
    secret: SECRET,
    flags: ['--home', home, '--temporal-address', temporal],
  }).start();
  onTestFinished(() => gateway.kill('SIGTERM'));
  return gateway;
}

test('a run that is asked through the gateway does what the command does, and the reply has the command’s sentence', async () => {
  const client = await clientOf();
  const world = new FakeWorld();
  const { held } = hold(world, /^asked-/);
  const ask = async (verb: 'resume' | 'stop' | 'cancel') => (await client.operate('asked', { verb })).message;
  await stage.over(world, async () => {
    await stage.start('asked');
    await until(() => held.size === 4);
    expect((await client.run('asked')).is_operable).toBe(true);
    await expect(client.operate('asked', { verb: 'pause', seconds: 0 })).rejects.toMatchObject({
      status: 400,
      code: 'bad_input',
      message: expect.stringContaining('seconds: expected a number above 0'),
    });
    const { message } = await client.operate('asked', { verb: 'pause', seconds: 3600 });
    expect(message).toMatch(/^run asked starts no more groups and no train step until \d{4}-/);
    const pauseEnd = async () => (await client.run('asked')).paused_until;
    expect((await pauseEnd()) ?? 0).toBeGreaterThan(Date.now() / 1000 + 1_800);
    expect(await ask('resume')).toBe('run asked goes on');
    expect(await pauseEnd()).toBeNull();
    await oneVerb(store.db, 'asked', () =>
      expect(client.operate('asked', { verb: 'stop' })).rejects.toMatchObject({
        status: 400,
        message: expect.stringContaining('has not yet answered to what another gateway was asked'),
      }),
    );
    const redo = { verb: 'redo', iteration: 0, take: 1 } as const;
    expect((await client.operate('asked', redo)).message).toBe('run asked starts its last iteration again');
    await until(() => held.size === 8);
    const takes = await store.db.select().from(iterations).where(eq(iterations.runId, 'asked'));
    expect(takes.map(({ take, status }) => `${take} ${status}`).toSorted()).toEqual(['1 superseded', '2 open']);
    for (const seen of [{ take: 1 }, { iteration: 1 }])
      await expect(client.operate('asked', { ...redo, ...seen })).rejects.toMatchObject({
        status: 400,
        message: expect.stringContaining('nothing was changed: its last one is iteration 0, take 2'),
      });
    expect(await ask('stop')).toBe('run asked stops after iteration 0');
    expect(await ask('cancel')).toBe('run asked is cancelled; to continue it: npx trialgate resume asked');
  });
  await expect(ask('stop')).rejects.toMatchObject({
    status: 404,
    message: expect.stringContaining('run asked is not under way: "npx trialgate show asked" shows its state'),
  });
  await expect(client.operate('aske', { verb: 'stop' })).rejects.toMatchObject({
    status: 404,
    message: expect.stringContaining('there is no run aske (did you mean asked?)'),
  });
});

test('a fork that is asked through the gateway starts from the version with the settings of the run, and what it refuses starts nothing', async () => {
  const client = await clientOf();
  const config = stage.config({ iterations: 3, seed: 7 });
  await runWithVersion(store.db, home, 'parent', 2, config);
  const world = new FakeWorld();
  await stage.over(world, async () => {
    const fork = { verb: 'fork', version: 2, run_id: 'child', iterations: 1, file: 'optim: {lr: 1e-5}' } as const;
    expect(await client.operate('parent', fork)).toEqual({
      run_id: 'child',
      message: expect.stringMatching(/run child started from parent@2: npx trialgate show child$/),
    });
    const child = and(eq(runs.id, 'child'), eq(runs.forkedFrom, 'parent@2'));
    expect((await store.db.select().from(runs).where(child))[0]?.config).toMatchObject({
      iterations: 1,
      seed: 7,
      optim: { lr: 1e-5, eps: 1e-8 },
    });
    await expect(client.operate('parent', fork)).rejects.toMatchObject({ status: 400 });
    const other = { ...fork, run_id: 'other' };
    for (const [file, why] of [
      ['model: another', '`model` is parent@2 in a fork'],
      ['tasks: [/home/somebody/tasks]', 'tasks: a run file that is sent to the gateway may name only what is bundled'],
    ] as const)
      await expect(client.operate('parent', { ...other, file })).rejects.toMatchObject({
        status: 400,
        message: expect.stringContaining(why),
      });
    await expect(client.operate('parent', { ...other, version: 9 })).rejects.toMatchObject({
      status: 400,
      message: expect.stringContaining('run parent has no policy version 9'),
    });
    await stage.ended('child');
  });
  expect((await store.db.select().from(runs)).map(({ id }) => id)).not.toContain('other');
});

test('a run file that is sent to the gateway is tried as `train` does, says what is done meanwhile, and is started', async () => {
  const engine = await new FakeEngine().start();
  onTestFinished(() => engine.stop());
  await store.db.delete(replicas);
  onTestFinished(async () => void (await store.db.delete(replicas)));
  const gateway = await startGateway(ADMIN_KEY, environment.address, engine.url);
  // As `up` notes where its gateway listens, which the tried agents ask.
  const supervisor = { pid: 2 ** 22 + 1, ticks: 1 };
  const nothing = { failure: null, settings: null, ranks: null, notes: [], components: [], engines: [] };
  writeState(home, { supervisor, status: 'ready', ports: { gateway: Number(new URL(gateway.url).port) }, ...nothing });
  const client = new TrialgateClient({ baseUrl: gateway.url, adminKey: ADMIN_KEY });
  const file = 'model: m\ntasks: [tasks/train/add]\niterations: 1\ngroups_per_iteration: 1\ngroup_size: 2\n';
  await runWithVersion(store.db, home, 'known', 0, stage.config());
  const canTry = (await isolation()).kind === 'bubblewrap';
  const lines: string[] = [];
  const onProgress = (line: string): void => void lines.push(line);
  await stage.over(new FakeWorld(), async () => {
    expect(await client.startRun({ file, run_id: 'sent', as: 'known' }, { onProgress })).toEqual({
      run_id: 'sent',
      message: 'run sent started: npx trialgate show sent',
    });
    expect(lines.at(-1)).toMatch(canTry ? /^agents and verifiers work/ : /^agents and verifiers were not tried/);
    await stage.ended('sent');
    await expect(client.startRun({ file: `${file}network: host\n`, as: 'sent' })).rejects.toMatchObject({
      status: 400,
      message: expect.stringMatching(/network: a run file that is sent.*npx trialgate train FILE/),
    });
  });
  expect((await client.run('sent')).config).toMatchObject({ tasks: [resolve('tasks/train/add')], iterations: 1 });
  if (!canTry) return;
  // A gateway that stops during a try removes the sandbox and starts nothing.
  engine.fault = 'hang';
  const stopped = new AbortController();
  const env = {
    TRIALGATE_TEMPORAL_ADDRESS: environment.address,
    TRIALGATE_DATABASE_URL: store.postgres.url,
    TRIALGATE_GATEWAY_URL: gateway.url,
    TRIALGATE_SECRET: SECRET,
    TRIALGATE_HOME: home,
  };
  const { startRun } = operateInThread(resolveConfig({ cwd: home, env }).config);
  const tried: string[] = [];
  const onLine = (line: string): void => void tried.push(/^trial (try-\w+): /.exec(line)?.[1] ?? '');
  const cut = startRun({ file, run_id: 'cut', as: 'known' }, onLine, stopped.signal);
  void until(() => tried.length > 0 && engine.seen.length > 1).then(() => stopped.abort(new Error('it stops')));
  await expect(cut).rejects.toThrow('it stops');
  const [trial] = await store.db
    .select()
    .from(trials)
    .where(eq(trials.id, tried[0] ?? ''));
  expect(trial?.outcome).toBe('cancelled');
  await expect(client.run('cut')).rejects.toMatchObject({ status: 404 });
});

test('a gateway whose Temporal is away says so, as the commands do', async () => {
  const client = await clientOf('127.0.0.1:9');
  await expect(client.operate('any', { verb: 'stop' })).rejects.toMatchObject({
    status: 500,
    code: 'missing_prerequisite',
    message: expect.stringContaining('Temporal does not answer at 127.0.0.1:9'),
  });
});

test('a gateway without an admin key changes no runs, because any program of the machine could ask it', async () => {
  const { url } = await startGateway(null, environment.address);
  const client = new TrialgateClient({ baseUrl: url });
  await expect(client.operate('any', { verb: 'stop' })).rejects.toMatchObject({ status: 501, code: 'not_operable' });
});

test('a verb whose database is away says so, and the reason is there for the log', async () => {
  const env = {
    TRIALGATE_TEMPORAL_ADDRESS: environment.address,
    TRIALGATE_DATABASE_URL: 'postgres://127.0.0.1:9/none',
  };
  const { operateRun } = operateInThread(resolveConfig({ cwd: home, env }).config);
  await expect(operateRun('any', { verb: 'stop' }, new AbortController().signal)).rejects.toMatchObject({
    code: 'store_unavailable',
    message: expect.stringContaining('it is not known whether the run followed'),
    stack: expect.stringContaining('ECONNREFUSED'),
  });
});
