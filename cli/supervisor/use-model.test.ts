import type { TestWorkflowEnvironment } from '@temporalio/testing';
import { readFileSync } from 'node:fs';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'vitest';
import { noteWait } from '../../store/queries/pool-queue.ts';
import { DEPLOYMENT_POOL, replicas, runs } from '../../store/schema.ts';
import { runConfig } from '../../core/run-config/run-config.ts';
import { fakeHub } from '../../tests/support/fakes/fake-hub.ts';
import { until } from '../../tests/support/harness/until.ts';
import { useDatabase } from '../../tests/support/harness/use-database.ts';
import { startTemporal, stopTemporal } from '../../tests/support/harness/workflow-worker.ts';
import { resolveConfig } from '../config/resolve.ts';
import type { Asked } from '../options.ts';
import { environment, type Component } from './component.ts';
import { requestModel } from './control.ts';
import type { Components } from './components/all.ts';
import { isAlive } from './processes.ts';
import type { Plan } from './plan.ts';
import { requireSameSettings } from './require-same-settings.ts';
import { startStack, type Stack } from './stack.ts';
import { useModel } from './use-model.ts';

/** A server of its own, because `useModel` connects to the namespace `default`. */
let temporal: TestWorkflowEnvironment;
beforeAll(async () => void (temporal = await startTemporal()));
afterAll(() => stopTemporal(temporal));
const store = useDatabase();
const never = new AbortController().signal;
let folder = '';
let stack: Stack;

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'trialgate-use-model-'));
  for (const name of ['first', 'second', 'third', 'broken', 'slow', 'empty']) await mkdir(join(folder, name));
  for (const name of ['first', 'second', 'third', 'broken', 'slow'])
    for (const file of ['config.json', 'model.safetensors']) await writeFile(join(folder, name, file), '{}');
  for (const table of [replicas, runs]) await store.db.delete(table);
  stack = await startStack({ config: asked({ model: join(folder, 'first') }).config, components }, never);
});
afterEach(async () => {
  await stack.stop();
  await rm(folder, { recursive: true });
});

function asked(flags: Record<string, string> = {}): Asked {
  const given = {
    home: join(folder, 'home'),
    gateway_port: '0',
    database_url: store.postgres.url,
    temporal_address: temporal.address,
    ...flags,
  };
  return { ...resolveConfig({ cwd: folder, env: {}, flags: given }), flags, file: undefined };
}

/** Programs of node in place of vLLM and of another process. The one in place of vLLM ends with the model `broken` and is never ready with `slow`. */
function components(plan: Plan): Components {
  const { model } = plan.config;
  const script = model.endsWith('broken')
    ? 'console.error("error: no weights"); process.exit(1)'
    : 'setInterval(() => {}, 1000)';
  const program = (name: string, ...args: string[]): Component => ({
    name,
    address: name,
    needs: [],
    launch: () => ({ file: process.execPath, args, env: environment({}) }),
    isReady: async () => !/(broken|slow)$/.test(args.join()),
    readyWithinMs: 60_000,
    stopSignal: 'SIGTERM',
    stopWithinMs: 5_000,
  });
  const engine = { ...program('vllm', '-e', script, '--', model), address: `model ${model}` };
  return { components: [engine, program('other', '-e', script)], notes: [] };
}

const use = (name: string, signal = never, onChange = (): void => {}) =>
  useModel(asked().config, join(folder, name), onChange, signal);
const component = (name: string) => stack.state().components.find((each) => each.name === name);
const engineRuns = () => {
  const pid = component('vllm')?.process?.pid;
  return pid === undefined ? null : readFileSync(`/proc/${pid}/cmdline`, 'utf8').split('\0').at(-2);
};

test('`engine use` starts the engine with another model while the other processes go on, and later starts take that model until the configured one changes', async () => {
  const [engine, other] = [component('vllm')?.process, component('other')?.process];
  expect(await use('second')).toContain(`the engine runs ${join(folder, 'second')}`);
  expect(engineRuns()).toBe(join(folder, 'second'));
  expect(engine && isAlive(engine)).toBe(false);
  expect(component('other')?.process).toEqual(other);
  expect(component('vllm')?.address).toBe(`model ${join(folder, 'second')}`);

  expect(asked().config.model).toBe(join(folder, 'second'));
  expect(asked().origins.model).toBe('engine use');
  requireSameSettings(asked(), stack.state());
  expect(asked({ model: 'given' }).config.model).toBe('given');
  const later = resolveConfig({ cwd: folder, env: { TRIALGATE_HOME: join(folder, 'home'), TRIALGATE_MODEL: 'newer' } });
  expect(later.config.model).toBe('newer');
});

test('the choice of `engine use` holds in every shell whose model is the default or the one that the deployment was started with, and ends when it starts with another', async () => {
  await stack.stop();
  const shell = (env: Record<string, string>) =>
    resolveConfig({ cwd: folder, env: { TRIALGATE_HOME: join(folder, 'home'), ...env } });
  const first = { TRIALGATE_MODEL: join(folder, 'first') };
  const start = async (own: Record<string, string>) => {
    const { config, configuredModel } = shell({ ...own, TRIALGATE_GATEWAY_PORT: '0' });
    const places = { database_url: store.postgres.url, temporal_address: temporal.address };
    stack = await startStack({ config: { ...config, ...places }, configuredModel, components }, never);
  };
  await start(first);
  await use('second');
  for (const env of [first, {}]) expect(shell(env).config.model).toBe(join(folder, 'second'));
  expect(shell({ TRIALGATE_MODEL: 'other' }).config.model).toBe('other');
  await stack.stop();
  await start({ TRIALGATE_MODEL: join(folder, 'third') });
  for (const env of [first, {}]) expect(shell(env).origins.model).not.toBe('engine use');
});

test('a switch whose command is killed at its end is kept for later starts', async () => {
  await requestModel(join(folder, 'home'), join(folder, 'second'), never);
  expect(asked().config.model).toBe(join(folder, 'second'));
});

test('an engine that cannot start with the other model starts again with the old one, which stays the choice', async () => {
  await use('second');
  await expect(use('broken')).rejects.toThrow(/vllm cannot start: .*no weights.* starts again with .*second/);
  await until(() => component('vllm')?.status === 'ready');
  expect(engineRuns()).toBe(join(folder, 'second'));
  expect(asked().config.model).toBe(join(folder, 'second'));
});

test('an interrupted switch starts the engine again with the old model', async () => {
  const interrupt = new AbortController();
  await expect(use('slow', interrupt.signal, () => interrupt.abort(new Error('interrupted')))).rejects.toThrow();
  await until(() => component('vllm')?.status === 'ready' && engineRuns() === join(folder, 'first'));
  expect(stack.state().settings?.['model']).toBe(join(folder, 'first'));
  expect(asked().origins.model).toBe('default');
});

test('a switch is refused while a run or an evaluation has the engines or waits for them, and what a terminated run left hinders nobody', async () => {
  const config = runConfig.parse({ model: 'm', tasks: ['t'], iterations: 1 });
  await store.db.insert(runs).values([
    { id: 'owner', config },
    { id: 'next', config },
  ]);
  await store.db.insert(replicas).values({ url: 'unix:/engine', runId: 'owner' });
  const start = (workflowId: string) =>
    temporal.client.workflow.start('trainRun', { workflowId, taskQueue: 'nobody', args: [] });
  const run = await start('owner');
  await expect(use('second')).rejects.toThrow(/^run owner has the engines, .*trialgate cancel owner`/);
  await run.terminate();
  const evaluation = await start('owner/evaluate');
  await until(async () =>
    use('second').then(
      () => false,
      (error: unknown) => /^owner\/evaluate has/.test(String(error).replace(/^\w+: /, '')),
    ),
  );
  await evaluation.terminate();
  await noteWait(store.db, 'next', DEPLOYMENT_POOL);
  await until(async () =>
    use('second').then(
      () => false,
      (error: unknown) => /run next waits for the engines/.test(String(error)),
    ),
  );
  expect(engineRuns()).toBe(join(folder, 'first'));
  await store.db.delete(runs);
  await use('second');
});

test('a switch to a folder that has no model is refused, and the engine that runs is not ended', async () => {
  const engine = component('vllm')?.process;
  await expect(use('empty')).rejects.toThrow(/empty has no config.json: name the folder of a model/);
  expect(component('vllm')?.process).toEqual(engine);
});

test('a switch to a model that the hub does not have is refused, and the engine that runs is not ended', async () => {
  await using hub = await fakeHub({});
  const engine = component('vllm')?.process;
  const refused = useModel(asked().config, 'org/firts', () => {}, never);
  await expect(refused).rejects.toThrow(/^there is no model org\/firts: .*Did you mean .*\/first\?$/);
  expect(hub.asked).toEqual(['/org/firts/resolve/main/config.json']);
  expect(component('vllm')?.process).toEqual(engine);
});

test('a switch to a folder that is not there, of engines that the deployment did not start, or of a deployment that does not run is refused', async () => {
  await expect(use('missing')).rejects.toThrow(/there is no folder .*missing/);
  await expect(useModel(asked({ home: join(folder, 'none') }).config, 'm', () => {}, never)).rejects.toThrow(
    /nothing runs in .*none: `npx trialgate up --model m`/,
  );
  const external = asked({ home: join(folder, 'external'), engines: 'http://127.0.0.1:9' });
  const others = await startStack(
    { config: external.config, components: () => ({ components: [], notes: [] }) },
    never,
  );
  try {
    await expect(useModel(external.config, 'm', () => {}, never)).rejects.toThrow(
      /did not start its engines \(http:\/\/127\.0\.0\.1:9\): start vLLM there/,
    );
  } finally {
    await others.stop();
  }
});
