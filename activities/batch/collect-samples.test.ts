import { MockActivityEnvironment } from '@temporalio/testing';
import { tableFromIPC } from 'apache-arrow';
import { eq } from 'drizzle-orm';
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { beforeAll, expect, test } from 'vitest';
import { openAttempt } from '../../store/queries/open-attempt.ts';
import { recordCalls } from '../../store/queries/record-calls.ts';
import { sealAttempt } from '../../store/queries/seal-attempt.ts';
import {
  batches,
  blobs,
  groups,
  iterations,
  policyVersions,
  runs,
  trials,
  type Outcome,
  type RoutedExperts,
} from '../../store/schema.ts';
import { npyOf } from '../../tests/support/fakes/npy.ts';
import { callRecord } from '../../tests/support/scenarios/call-record.ts';
import { useDatabase } from '../../tests/support/harness/use-database.ts';
import { assembleBatch, type AssembledBatch } from './assemble-batch.ts';
import { parseRunConfig } from '../../core/run-config/parse-run-config.ts';
import { batchMetrics } from './batch-metrics.ts';
import { collectSamples } from './collect-samples.ts';
import { ScriptedTeacher } from '../../tests/support/fakes/scripted-teacher.ts';
import { readExperts } from './routed-experts.ts';
import { writeBatch } from './write-batch.ts';

const store = useDatabase();
const config = parseRunConfig({
  model: 'm',
  tasks: ['t'],
  iterations: 5,
  max_staleness: 1,
  group_quorum: 2,
  group_size: 4,
  stragglers: 'carry_over',
});
const take = { runId: 'run', iteration: 3, take: 1 };

type SampleVersions = { version: number; tokens?: number; /** Its first tokens are of this version. */ from?: number };

/** Adds a trial sampled by these versions, and marks it for a batch. */
async function trial(
  group: string,
  trialIndex: number,
  { version, tokens = 4, from }: SampleVersions,
  end: { outcome?: Outcome; reward?: number; turns?: number[]; batch?: number | null },
): Promise<void> {
  const { outcome = 'scored', reward = 1, turns, batch = 3 } = end;
  const trialId = `${group}-${trialIndex}`;
  await openAttempt(store.db, { trialId, attempt: 1, runId: 'run', groupId: group, trialIndex });
  const versionSpans =
    from === undefined
      ? null
      : [
          { version: from, start: 0, end: 1 },
          { version, start: 1, end: tokens },
        ];
  const choice = {
    completionTokenIds: new Int32Array(tokens),
    logprobs: new Float32Array(tokens),
    policyVersion: version,
    versionSpans,
  };
  await recordCalls(store.db, [callRecord({ trialId, promptTokenIds: Int32Array.of(1, 2), choice })]);
  await sealAttempt(store.db, {
    trialId,
    outcome,
    final: true,
    rewards: outcome === 'cancelled' ? undefined : { reward },
    turnRewards: turns && { reward: turns },
  });
  if (batch !== null)
    await store.db.update(trials).set({ batchIteration: batch, batchTake: 1 }).where(eq(trials.id, trialId));
}

/** The versions are 0 → 1 → 3 → 4; a superseded take made version 2. The step starts from 4. */
beforeAll(async () => {
  await store.db.insert(runs).values({ id: 'run', config });
  for (const [version, parentVersion] of [
    [0, null],
    [1, 0],
    [2, 1],
    [3, 1],
    [4, 3],
  ] as const) {
    await store.db.insert(policyVersions).values({
      runId: 'run',
      version,
      parentVersion,
      stepKey: `${version}`,
      checkpoint: '',
      checkpointSha256: '',
      canary: { token_ids: [], logprobs: [] },
    });
  }
  await store.db.insert(iterations).values([
    { runId: 'run', iteration: 2, take: 1, policyVersion: 3 },
    { ...take, policyVersion: 4 },
  ]);
  const group = (id: string, values: Partial<typeof groups.$inferInsert>) => ({
    id,
    runId: 'run',
    kind: 'train' as const,
    iteration: 3,
    take: 1,
    ordinal: 0,
    task: 't',
    agent: 'a',
    size: 4,
    policyVersion: 4,
    batchIteration: 3,
    batchTake: 1,
    ...values,
  });
  await store.db
    .insert(groups)
    .values([
      group('new', {}),
      group('carried', { iteration: 2, batchIteration: 2 }),
      group('flat', { ordinal: 1, batchIteration: null, dropped: 'no_spread' }),
    ]);

  await trial('new', 0, { version: 4, tokens: 2 }, { reward: 1 });
  await trial('new', 1, { version: 4, from: 3, tokens: 6 }, { reward: 0, turns: [0, 0] });
  await trial('new', 2, { version: 1 }, {});
  await trial('new', 3, { version: 4, tokens: 40 }, { outcome: 'cancelled' });
  await trial('carried', 0, { version: 3 }, { reward: 0.25, turns: [0, 0.25], batch: 2 });
  await trial('carried', 1, { version: 4, from: 2 }, {});
  await trial('carried', 2, { version: 3, tokens: 7 }, { reward: 0.5 });
  await trial('flat', 0, { version: 4, tokens: 20 }, { reward: 1 });
});

test('a batch leaves out samples that are too old or have tokens of a superseded take; a sample is as old as its oldest trained token', async () => {
  const { samples, stale, staleness } = await collectSamples(store.db, config, take, 4);
  expect(samples.map(({ trialId }) => trialId)).toEqual(['carried-2', 'new-0', 'new-1']);
  expect(staleness).toEqual([1, 0, 1]);
  expect(stale.map(({ trialId }) => trialId)).toEqual(['carried-1', 'new-2']);
  expect(samples.find(({ trialId }) => trialId === 'new-1')?.policyVersions).toEqual([null, null, 3, 4, 4, 4, 4, 4]);
});

test('a trial’s baseline includes every scored trial of its group, also those of earlier batches and those without a trainable sample', async () => {
  const { samples } = await collectSamples(store.db, config, take, 4);
  const whole = { rewards: { reward: 1 }, turnRewards: {} };
  const byTurns = { rewards: { reward: 0.25 }, turnRewards: { reward: [0, 0.25] } };
  expect(samples.map(({ companions }) => companions)).toEqual([[byTurns, whole], [whole], [whole]]);
  expect(samples.map(({ turnRewards }) => turnRewards)).toEqual([{}, {}, { reward: [0, 0] }]);
  expect(samples.map(({ turns }) => turns.at(-1))).toEqual([0, 0, 0]);
});

test('a batch’s metrics count the trials, tokens, rewards and seconds that it dropped beside those that it used', async () => {
  const metrics = await batchMetrics(store.db, config, await collectSamples(store.db, config, take, 4));
  expect(metrics).toMatchObject({
    groups: 2,
    samples_per_trial: 1,
    stale_samples: 2,
    staleness_max: 1,
    used_trials: 3,
    used_tokens: 5,
    used_reward: 0.5,
    dropped_trials: 4,
    dropped_reward: 1,
  });
  expect(metrics['staleness_mean']).toBeCloseTo(2 / 3);
  expect(metrics['dropped_tokens']).toBe((4 + 40 + 4 + 20) / 4);
  // The sealed trials took as long as this test.
  expect(
    [metrics['used_seconds'], metrics['dropped_seconds']].every(
      (seconds) => seconds !== undefined && seconds > 0 && seconds < 60,
    ),
  ).toBe(true);
});

test('a batch waits for its teacher, holds the teacher’s answer for each sampled token, and never changes afterwards; its step keeps the best checkpoint', async () => {
  const home = await mkdtemp(join(tmpdir(), 'trialgate-teacher-'));
  const teacher = await new ScriptedTeacher().start();
  const assemble = (): Promise<AssembledBatch> =>
    new MockActivityEnvironment().run(assembleBatch({ db: store.db, home }), take);
  try {
    await store.db.update(runs).set({
      config: {
        ...config,
        teacher: { url: `${teacher.url}/v1`, model: 'big', distillation_loss_coef: 0.5, loss_max_clamp: 10 },
      },
    });
    await teacher.stop();
    await expect(assemble()).rejects.toThrow(`the teacher at ${teacher.url}/v1 cannot be reached`);
    expect(await store.db.select().from(batches)).toEqual([]);
    await teacher.start();
    const best = join(home, 'best');
    await mkdir(best);
    await writeFile(join(best, 'manifest.json'), '{}');
    await store.db.update(policyVersions).set({ checkpoint: best }).where(eq(policyVersions.version, 3));
    await store.db.update(iterations).set({ status: 'done' }).where(eq(iterations.iteration, 2));
    const { step } = await assemble();
    expect(step.best_checkpoint).toBe(best);
    expect(step.trainer.teacher).toEqual({ distillation_loss_coef: 0.5, loss_max_clamp: 10 });
    const rows = tableFromIPC(await readFile(step.batch_path))
      .toArray()
      .map((row) => [...row.teacher_logprobs]);
    // The completions of the fixtures have only the id 0.
    expect(rows).toEqual([7, 2, 6].map((tokens) => [null, null, ...new Array<number>(tokens).fill(Math.fround(-0.1))]));
    await teacher.stop();
    expect((await assemble()).step).toEqual(step);
  } finally {
    await teacher.stop();
    await rm(home, { recursive: true });
  }
});

/** Adds a trial of two turns to the batch of iteration 4. Both have the experts of the tokens that are new in them: 300 stands for a large mixture. */
async function mixtureTrial(trialIndex: number, largest: number): Promise<Buffer> {
  const trialId = `mixture-${trialIndex}`;
  await openAttempt(store.db, { trialId, attempt: 1, runId: 'run', groupId: 'mixture', trialIndex });
  const first = npyOf([1, 2, 3, 4, 5].map((expert) => [expert, trialIndex]));
  const second = Buffer.from(Int32Array.of(6, 0, 7, 0, largest, 0).buffer);
  const choice = (tokens: number, experts: Pick<RoutedExperts, 'form' | 'start'> & { base64: string }) => ({
    completionTokenIds: new Int32Array(tokens),
    logprobs: new Float32Array(tokens),
    policyVersion: 4,
    experts,
  });
  await recordCalls(store.db, [
    callRecord({
      trialId,
      promptTokenIds: Int32Array.of(1, 2),
      choice: choice(4, { form: 'npy', start: 0, base64: first.toString('base64') }),
    }),
    callRecord({
      trialId,
      promptTokenIds: Int32Array.of(1, 2, 0, 0, 0, 0, 9),
      choice: choice(2, { form: 'int32', start: 5, base64: second.toString('base64') }),
    }),
  ]);
  await sealAttempt(store.db, { trialId, outcome: 'scored', final: true, rewards: { reward: trialIndex } });
  await store.db.update(trials).set({ batchIteration: 4, batchTake: 1 }).where(eq(trials.id, trialId));
  return first;
}

test('with `enable_router_replay` a batch has the experts of each call’s new tokens, in the narrowest integers, but for those that are gone; without it, none', async () => {
  const home = await mkdtemp(join(tmpdir(), 'trialgate-experts-'));
  const mixture = { runId: 'run', iteration: 4, take: 1 };
  const replaying = { ...config, enable_router_replay: true };
  try {
    await store.db.update(runs).set({ config: replaying });
    await store.db.insert(iterations).values({ ...mixture, policyVersion: 4 });
    await store.db.insert(groups).values({
      ...{ id: 'mixture', runId: 'run', kind: 'train', iteration: 4, take: 1, ordinal: 0, task: 't', agent: 'a' },
      ...{ size: 3, policyVersion: 4, batchIteration: 4, batchTake: 1 },
    });
    const [first, second] = [await mixtureTrial(0, 8), await mixtureTrial(1, 300)];
    await mixtureTrial(2, 8);
    await store.db.delete(blobs).where(eq(blobs.trialId, 'mixture-2'));
    const { step }: AssembledBatch = await new MockActivityEnvironment().run(
      assembleBatch({ db: store.db, home }),
      mixture,
    );
    expect(step.trainer.enable_router_replay).toBe(true);
    const rows = tableFromIPC(await readFile(step.batch_path))
      .toArray()
      .map(({ routed_experts: named }) =>
        [...named].map((each) => ({ ...each.toJSON(), rows: Buffer.from(each.rows) })),
      );
    const of = (npy: Buffer, form: string, bytes: Uint8Array) => [
      { start: 0, end: 5, form: 'npy', rows: npy },
      { start: 5, end: 8, form, rows: Buffer.from(bytes) },
    ];
    expect(rows).toEqual([
      of(first, 'uint8', Uint8Array.of(6, 0, 7, 0, 8, 0)),
      of(second, 'uint16', new Uint8Array(Uint16Array.of(6, 0, 7, 0, 300, 0).buffer)),
      [],
    ]);
    const recorded = await collectSamples(store.db, replaying, mixture, 4);
    const sharing = recorded.samples.slice(0, 1).flatMap((each) => [each, each]);
    const [one, other] = await readExperts(store.db, sharing, new AbortController().signal);
    expect(other?.[0]?.rows).toBe(one?.[0]?.rows);
    await expect(readExperts(store.db, sharing, AbortSignal.abort())).rejects.toThrow(/abort/i);
    const { samples } = await collectSamples(store.db, config, mixture, 4);
    const { path } = await writeBatch(home, samples);
    expect(tableFromIPC(await readFile(path)).schema.names).not.toContain('routed_experts');
  } finally {
    await rm(home, { recursive: true });
  }
});
