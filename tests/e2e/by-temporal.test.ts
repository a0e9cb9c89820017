import { Context, sleep } from '@temporalio/activity';
import { Client, ServiceError, type WorkflowClientInterceptor } from '@temporalio/client';
import { execFile } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { runConfig } from '../../core/run-config/run-config.ts';
import { until } from '../support/harness/until.ts';
import { FakeWorld } from '../support/fakes/fake-activities.ts';
import type { RunStatusReport } from '../../workflows/messages.ts';
import { useTemporal } from '../support/harness/use-temporal.ts';
import { withWorkers } from '../support/harness/workflow-worker.ts';
import { INSTALLS } from '../../cli/folders.ts';
import { REPOSITORY } from '../../core/repository.ts';
import { retryDroppedUpdates } from '../../cli/run/retry-updates.ts';
import { updateRun } from '../../cli/run/update-run.ts';

const execute = promisify(execFile);
const environment = useTemporal();
let working: Promise<void>;
const over = Promise.withResolvers<void>();
/** All runs share one world, because a worker takes seconds to start. */
const world = new FakeWorld();
const config = runConfig.parse({ model: 'm', tasks: ['t'], iterations: 2, groups_per_iteration: 1, group_size: 2 });
beforeAll(() => {
  working = withWorkers(
    environment,
    { trialgate: world.general(), sandboxes: world.sandboxes(), host: world.host(), gpu: world.gpu() },
    () => over.promise,
  );
});
afterAll(async () => {
  over.resolve();
  await working;
});

/** Returns the commands in the right column of docs/operating.md's table, by verb. */
async function documented(): Promise<Map<string, string>> {
  const text = await readFile(join(REPOSITORY, 'docs/operating.md'), 'utf8');
  const rows = text.matchAll(/^\| [^|]+ \| `([a-z]+) RUN[^|]*` \| `([^|]+)` \|$/gm);
  return new Map([...rows].map(([, verb = '', command = '']) => [verb, command]));
}

/** Runs Temporal's own CLI with a command line as the documents write it, and returns its output. */
async function temporal(line: string): Promise<string> {
  const words = [...line.matchAll(/'([^']*)'|(\S+)/g)].map(([, quoted, word]) => quoted ?? word ?? '');
  const { namespace } = environment.client.options;
  const { stdout } = await execute(
    INSTALLS.temporal,
    ['workflow', ...words, '--address', environment.address, '--namespace', namespace, '-o', 'json'],
    { env: { PATH: process.env['PATH'], HOME: '/nonexistent' } },
  );
  return stdout;
}

/** Runs two iterations. The first waits `at` one of its agents or its train step until `body` has ended. */
async function operated(runId: string, at: 'agent' | 'train', body: () => Promise<void>): Promise<void> {
  world.config =
    at === 'train' ? { ...config, evaluation: { ...config.evaluation, tasks: ['held-out'], after: false } } : config;
  world.log.length = 0;
  world.takes.clear();
  const reached = Promise.withResolvers<void>();
  const freed = Promise.withResolvers<void>();
  const hold = async () => {
    reached.resolve();
    const beat = setInterval(() => Context.current().heartbeat(), 200);
    await Promise.race([freed.promise, sleep('1h')]).finally(() => clearInterval(beat));
  };
  world.runAgent = async ({ trialId }) => {
    if (at === 'agent' && trialId === `${runId}-0.1-0-0`) await hold();
    return { outcome: null, seconds: {} };
  };
  world.trainStep = async () => {
    if (at === 'train') await freed.promise;
  };
  const run = await environment.client.workflow.start('trainRun', {
    workflowId: runId,
    taskQueue: 'trialgate',
    args: [{}],
    staticSummary: 'train m',
  });
  if (at === 'agent') await reached.promise;
  else await until(async () => (await run.query<RunStatusReport>('status')).phase === 'train');
  await body().finally(freed.resolve);
  await run.result();
}

type UpdateEffects = { answer: string; outcome: string | undefined; closed: number; config: unknown };

/** Sends an update to a run, and returns its answer and the effects. */
async function ask(runId: string, how: (runId: string, trial: string) => Promise<string>): Promise<UpdateEffects> {
  const trial = `${runId}-0.1-0-0`;
  let answer = '';
  await operated(runId, 'agent', async () => {
    answer = (await how(runId, trial)).replaceAll(runId, 'RUN').replace(/until [^;]*Z/, 'until TIME');
    await environment.client.workflow.getHandle(runId).executeUpdate('resume');
  });
  return {
    answer,
    outcome: world.outcomes.get(trial),
    closed: world.log.filter((entry) => entry.startsWith('close')).length,
    config: world.config,
  };
}

test.each([
  ['pause', () => ({ seconds: 1800 }), { closed: 2 }],
  ['resume', () => ({}), { closed: 2 }],
  [
    'configure',
    () => ({ optim: { lr: 1e-5 }, group_size: 16 }),
    { config: expect.objectContaining({ group_size: 16 }) },
  ],
  ['skip', (trial: string) => ({ trial }), { outcome: 'cancelled' }],
  ['extend', (trial: string) => ({ trial, seconds: 600 }), { outcome: 'scored' }],
  ['stop', () => ({}), { closed: 1 }],
])(
  '`%s` by the documented command of Temporal’s CLI does the same as by trialgate',
  async (verb, argument, expected) => {
    const command = (await documented()).get(verb) ?? 'nothing is documented';
    const byTemporal = await ask(`${verb}-by-temporal`, async (runId, trial) => {
      const { result }: { result: string } = JSON.parse(
        await temporal(command.replace('RUN', runId).replace('TRIAL', trial)),
      );
      return result;
    });
    const byUs = await ask(`${verb}-by-us`, (runId, trial) =>
      updateRun(environment.client, runId, verb, argument(trial)),
    );
    expect(byTemporal).toEqual(byUs);
    expect(byUs).toMatchObject(expected);
  },
);

test.each([
  ['unexpected workflow task failure', 2],
  ['another cause', 1],
])(
  'trialgate sends an update that fails on the way again, under its id, only if the run did not receive it (%s: sent %d times)',
  async (cause, times) => {
    const ids: unknown[] = [];
    const failsOnce: WorkflowClientInterceptor = {
      startUpdate(input, next) {
        ids.push(input.options.updateId);
        if (ids.length > 1) return next(input);
        const details = `Unable to perform workflow execution update due to ${cause}.`;
        throw new ServiceError('Workflow Update failed', {
          cause: Object.assign(new Error(`9 FAILED_PRECONDITION: ${details}`), { code: 9, details, metadata: {} }),
        });
      },
    };
    const { connection, options } = environment.client;
    const client = new Client({
      connection,
      namespace: options.namespace,
      interceptors: { workflow: [retryDroppedUpdates, failsOnce] },
    });
    const runId = `let-go-${times}`;
    await operated(runId, 'agent', async () => {
      const asking = updateRun(client, runId, 'pause', { seconds: 1800 });
      if (times === 1) await expect(asking).rejects.toThrow('Workflow Update failed');
      else expect(await asking).toContain('no more groups');
      await environment.client.workflow.getHandle(runId).executeUpdate('resume');
    });
    expect(ids).toEqual(Array(times).fill(ids[0]));
  },
);

test('a run and its workflows are found in Temporal by their search attributes, with summary and status', async () => {
  await operated('found', 'train', async () => {
    expect(await temporal(((await documented()).get('show') ?? '').replace('RUN', 'found'))).toMatch(
      /"phase": ?"train"/,
    );
    const { searchAttributes, staticSummary } = await environment.client.workflow.getHandle('found').describe();
    expect(searchAttributes).toMatchObject({
      TrialgateRun: ['found'],
      TrialgateIteration: [0],
      TrialgatePolicyVersion: [0],
      TrialgatePhase: ['train'],
    });
    expect(await staticSummary()).toBe('train m');
    expect(await temporal('metadata --workflow-id found')).toContain('**train**: iteration 0 of 2, take 1, policy 0');
    const found = async (query: string) => {
      const types = new Set<string>();
      for await (const { type } of environment.client.workflow.list({ query })) types.add(type);
      return [...types].toSorted();
    };
    await until(async () => (await found("TrialgateRun = 'found'")).length === 5);
    expect(await found("TrialgateRun = 'found'")).toEqual([
      'evaluatePolicy',
      'grpoIteration',
      'publishVersion',
      'rolloutGroup',
      'trainRun',
    ]);
    expect(await found("TrialgateRun = 'found' and TrialgateIteration = 0")).toEqual([
      'grpoIteration',
      'rolloutGroup',
      'trainRun',
    ]);
    expect(await found("TrialgateRun = 'found' and TrialgatePhase = 'evaluation'")).toEqual([
      'evaluatePolicy',
      'rolloutGroup',
    ]);
    expect(await (await environment.client.workflow.getHandle('found/0.1/0').describe()).staticSummary()).toBe(
      'train t × 2',
    );
    expect(await temporal('metadata --workflow-id found/0.1/0')).toContain('deadline');
  });
});
