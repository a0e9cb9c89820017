import { once } from 'node:events';
import { createServer } from 'node:http';
import { resolve } from 'node:path';
import { eq } from 'drizzle-orm';
import { expect, onTestFinished, test } from 'vitest';
import { runConfig } from '../../core/run-config/run-config.ts';
import { DEPLOYMENT_POOL, iterations, replicas, runs } from '../../store/schema.ts';
import { useDatabase } from '../../tests/support/harness/use-database.ts';
import { useTemporal } from '../../tests/support/harness/use-temporal.ts';
import { checkEngines } from './check-engines.ts';
import { startEvaluation } from './evaluate-policy.ts';
import { forkRun } from './fork-run.ts';
import { redoRun } from './redo-run.ts';
import { resumeRun } from './resume-run.ts';

const environment = useTemporal();
const store = useDatabase();

const config = runConfig.parse({ model: 'org/model', tasks: [resolve('tasks/train')], iterations: 1 });
const connected = () => ({ client: environment.client, db: store.db });
const resume = (runId: string) => resumeRun(connected(), runId);
const statusOf = async (id: string) => (await store.db.select().from(runs).where(eq(runs.id, id)))[0]?.status;

/** Makes a run that is blocked, and an engine of the deployment that has this model. Returns the engine's URL. */
async function blockedRun(id: string, root: string): Promise<string> {
  const server = createServer((_, response) => void response.end(JSON.stringify({ data: [{ id: 'policy', root }] })));
  await once(server.listen(0, '127.0.0.1'), 'listening');
  onTestFinished(() => void server.close());
  const address = server.address();
  const url = `http://127.0.0.1:${address !== null && typeof address === 'object' ? address.port : 0}`;
  await store.db.delete(replicas);
  await store.db.insert(replicas).values({ url, pool: DEPLOYMENT_POOL });
  await store.db.insert(runs).values({ id, config, status: 'blocked' });
  return url;
}

test('a run whose engine has another model is not resumed, with the sentence of `train`, and nothing changes', async () => {
  const engine = await blockedRun('other', 'org/other');
  const refusal = await checkEngines([engine], config, { gatewayUrls: [], secret: '' }).catch(
    (error: unknown) => error,
  );
  expect(String(refusal)).toContain('runs other, the run file names model');
  await expect(resume('other')).rejects.toEqual(refusal);
  expect(await statusOf('other')).toBe('blocked');
  await expect(environment.client.workflow.getHandle('other').describe()).rejects.toThrow('not found');
});

test('a run is resumed when its engine has its model, and when its engine is away', async () => {
  await blockedRun('same', 'org/model');
  expect(await resume('same')).toEqual({ answer: 'run same goes on', goesOn: true });
  await blockedRun('away', 'org/model');
  await store.db.update(replicas).set({ url: 'http://127.0.0.1:9' });
  expect(await resume('away')).toEqual({ answer: 'run away goes on', goesOn: true });
});

test('`resume` of a run that has completed changes nothing, says so, and names the command that trains on', async () => {
  await store.db.insert(runs).values({ id: 'over', config, status: 'completed' });
  const take = { runId: 'over', iteration: 0, take: 1, policyVersion: 0, trainedVersion: 1 };
  await store.db.insert(iterations).values({ ...take, status: 'done' });
  expect(await resume('over')).toEqual({
    answer:
      'run over has completed, and nothing is left to do. "npx trialgate show over" shows it, "npx trialgate fork over@1" trains on from its newest policy as a new run',
    goesOn: false,
  });
  expect(await statusOf('over')).toBe('completed');
  await expect(environment.client.workflow.getHandle('over').describe()).rejects.toThrow('not found');
});

test('`resume` of a run that `stop` ended goes on with the iterations that are left', async () => {
  await blockedRun('stopped', 'org/model');
  await store.db
    .update(runs)
    .set({ status: 'completed', config: { ...config, iterations: 2 } })
    .where(eq(runs.id, 'stopped'));
  const take = { runId: 'stopped', iteration: 0, take: 1, policyVersion: 0, trainedVersion: 1 };
  await store.db.insert(iterations).values({ ...take, status: 'done' });
  expect(await resume('stopped')).toEqual({ answer: 'run stopped goes on', goesOn: true });
});

const VERBS: [string, (runId: string) => Promise<unknown>][] = [
  ['redo', (runId) => redoRun(connected(), runId)],
  ['fork', (runId) => forkRun(connected(), { runId, version: 0 }, `${runId}-fork`, {})],
  ['evaluate', (runId) => startEvaluation(connected(), { runId })],
];

test.each(VERBS)(
  '`%s` is refused as `resume` is when an engine has another model, and nothing changes',
  async (verb, ask) => {
    await blockedRun(verb, 'org/other');
    const execution = { workflowId: verb, taskQueue: 'nobody', args: [] };
    const handle = await environment.client.workflow.start('trainRun', execution);
    await expect(ask(verb)).rejects.toMatchObject({
      code: 'bad_input',
      message: expect.stringContaining('runs other, the run file names model'),
    });
    await handle.terminate();
    expect((await store.db.select().from(runs)).filter(({ id }) => id.startsWith(verb))).toMatchObject([
      { id: verb, status: 'blocked' },
    ]);
    await expect(environment.client.workflow.getHandle(`${verb}/evaluate`).describe()).rejects.toThrow('not found');
  },
);

test('`fork --no-check` is refused too where the deployment has no engine that a run can use', async () => {
  await blockedRun('alone', 'org/model');
  await store.db.update(replicas).set({ url: 'openai+http://127.0.0.1:9' });
  await expect(
    forkRun(connected(), { runId: 'alone', version: 0 }, 'alone-fork', {}, { check: false }),
  ).rejects.toThrow(/^openai\+http.* is no engine for a run/);
});
