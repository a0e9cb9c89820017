import { execFile } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { appendFile, mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { and, eq, inArray, sql } from 'drizzle-orm';
import { afterAll, afterEach, beforeAll, beforeEach, expect, test, vi } from 'vitest';
import { openDatabase } from '../../store/database.ts';
import { recordCalls } from '../../store/queries/record-calls.ts';
import { attempts, calls, groups, iterations, policyVersions, publications, runs, trials } from '../../store/schema.ts';
import { killLoggerPrograms } from '../../tests/support/harness/logger-programs.ts';
import { startReceiver, type OtlpReceiver, type ReceivedSpan } from '../../tests/support/harness/otlp-receiver.ts';
import { SmallDisk } from '../../tests/support/harness/small-disk.ts';
import { withTemporaryStack } from '../../tests/support/harness/temporary-deployment.ts';
import { until } from '../../tests/support/harness/until.ts';
import { useServer } from '../../tests/support/harness/use-database.ts';
import { callRecord } from '../../tests/support/scenarios/call-record.ts';
import { logOnce } from '../../tests/support/scenarios/log-once.ts';
import { LoggedRun } from '../../tests/support/scenarios/logged-run.ts';
import { INSTALLS } from '../folders.ts';
import { INSTALL_LOG } from '../install/install.ts';
import { installLoggers } from '../install/loggers.ts';
import { destinationOf } from './destination.ts';
import { followRuns } from './follow-runs.ts';
import { loggerWarnings, readLoggerState } from './logger-state.ts';

const store = useServer();
const { signal } = new AbortController();
const INSTALL_MS = 600_000;
let home = '';
let receiver: OtlpReceiver;

beforeAll(async () => {
  await installLoggers(INSTALL_LOG, AbortSignal.timeout(INSTALL_MS));
});
beforeEach(async () => {
  home = await mkdtemp(join(tmpdir(), 'trialgate-otel-'));
  for (const table of [runs, trials, calls]) await store.db.delete(table);
  receiver = await startReceiver();
});
afterEach(async () => {
  vi.unstubAllEnvs();
  await receiver.stop();
  await rm(home, { recursive: true });
});
afterAll(() => killLoggerPrograms());

const setting = () => ({ name: 'otel', endpoint: receiver.url }) as const;
const log = (runId: string) => logOnce({ db: store.db, home, runId, logger: setting() });
const stateOf = (runId: string) => readLoggerState(home, runId, destinationOf(home, setting()));

/** Returns the received spans as lines, in the order in which they came. */
async function lines(): Promise<string[]> {
  const { spans } = await receiver.received();
  return spans.map(({ name, attributes }) =>
    `${name} ${['trialgate.trial', 'trialgate.group', 'trialgate.evaluation', 'rl.loop.iteration', 'gen_ai.response.id'].flatMap((each) => attributes[each]?.[1] ?? [])[0] ?? ''}`.trim(),
  );
}

const named = async (name: string): Promise<ReceivedSpan[]> =>
  (await receiver.received()).spans.filter((span) => span.name === name);
async function only(name: string): Promise<ReceivedSpan> {
  const [span, ...others] = await named(name);
  if (!span || others.length > 0) throw new Error(`${1 + others.length} spans of the name ${name}`);
  return span;
}
const keyOf = ({ trace, span }: { trace: string; span: string }) => ({ trace, span });

/** Follows all runs while `body` runs. */
async function following(body: (reports: string[]) => Promise<void>): Promise<void> {
  const end = new AbortController();
  const reports: string[] = [];
  const followed = followRuns({ db: store.db, home, pollMs: 100, report: (line) => reports.push(line) }, end.signal);
  try {
    await body(reports);
  } finally {
    end.abort();
    await followed;
  }
}

/** The spans of one iteration of `LoggedRun`. */
const ofIteration = (run: string, iteration: number, take = 1) => [
  ...[0, 1].map((index) => `rl.sample ${run}-${iteration}.${take}/0-${index}`),
  `rl.sample.group ${run}/${iteration}.${take}/0`,
  `rl.train ${iteration}`,
  `rl.loop ${iteration}`,
];

test('a run is sent as spans, each once and in order, also after its program was killed, the receiver failed, and the run was ended', async () => {
  const run = await new LoggedRun(store.db, 'first').begin([setting()]);
  await run.trainStep(0);
  await following(async () => {
    await until(() => stateOf('first')?.written === 2);
    await run.trainStep(1);
    await until(() => stateOf('first')?.written === 4);
    expect(killLoggerPrograms()).toBe(1);
    await receiver.fail({ status: 500 });
    await run.trainStep(2);
    const said = `the receiver ${receiver.url}/v1/traces answered 500: as the test says`;
    await until(() => loggerWarnings(home).some((each) => each.includes(said)));
    await receiver.fail({});
    await until(() => stateOf('first')?.written === 6);
    await run.end();
    await until(() => stateOf('first')?.complete);
  });
  expect(loggerWarnings(home)).toEqual([]);
  expect(await log('first')).toMatchObject({ written: 7 });
  expect(await lines()).toEqual([...[0, 1, 2].flatMap((iteration) => ofIteration('first', iteration)), 'rl.run']);
});

/** Writes three requests of a trial of a run's first group into the record: one for two replies, one that failed, and one of an earlier attempt. */
async function callModel(runId: string): Promise<void> {
  const trialId = `${runId}-0.1/0-0`;
  const set = (values: Partial<typeof trials.$inferInsert>) =>
    store.db.update(trials).set(values).where(eq(trials.id, trialId));
  await set({ status: 'created', outcome: null });
  const at = (seconds: number) => new Date(Date.UTC(2026, 0, 1, 0, 0, seconds));
  const first = callRecord({
    id: id(1),
    trialId,
    request: { model: 'm', messages: [{ role: 'user', content: 'a secret of the task' }] },
    promptTokenIds: Int32Array.from([1, 2, 3]),
    sampling: { temperature: 1, top_p: 0.5, top_k: 20 },
    weightVersion: `${runId}@0`,
    startedAt: at(0),
    firstTokenAt: at(1),
    endedAt: at(2),
    stream: true,
    traceparent: `00-${'1'.repeat(32)}-${'2'.repeat(16)}-01`,
    choice: { completionTokenIds: Int32Array.from([4, 5]), finishReason: 'stop', policyVersion: 0 },
  });
  const [choice] = first.choices;
  const second = { ...choice, id: id(2), completionTokenIds: Int32Array.from([6]), finishReason: 'length' };
  const reason = 'engine_500: a secret of the engine';
  const fails = {
    trialId,
    protocol: 'completions',
    status: 'failed',
    httpStatus: 502,
    fault: 'engine',
    reason,
  } as const;
  await recordCalls(store.db, [
    { ...first, choices: [choice, second] },
    callRecord({ ...fails, id: id(3), startedAt: at(3), endedAt: at(4) }),
  ]);
  await set({ status: 'completed', outcome: 'scored', sealedAt: at(9) });
  const seconds = { sandbox: 1, agent: 5, verify: 2 };
  await store.db
    .insert(attempts)
    .values({ trialId, attempt: 1, outcome: 'scored', seconds, openedAt: at(0), endedAt: at(8) });
}

const id = (n: number) => `00000000-0000-4000-8000-00000000000${n}`;

test('a call is a span by the conventions for generative AI below its trial, with a link to the agent’s own span and without any text, and a request for two replies is one', async () => {
  const run = await new LoggedRun(store.db, 'calls').begin();
  await run.trainStep(0);
  await callModel('calls');
  await run.end();
  await log('calls');
  const { spans } = await receiver.received();
  const trial = spans.find(({ attributes }) => attributes['trialgate.trial']?.[1] === 'calls-0.1/0-0');
  const call = await only('chat m');
  expect(call).toMatchObject({ kind: 3, trace: trial?.trace, parent: trial?.span, error: null });
  expect(call.end - call.start).toBe(2000);
  expect(call.links).toEqual([{ trace: '1'.repeat(32), span: '2'.repeat(16) }]);
  expect(call.attributes).toMatchObject({
    'gen_ai.operation.name': ['string_value', 'chat'],
    'gen_ai.provider.name': ['string_value', 'trialgate'],
    'gen_ai.conversation.id': ['string_value', 'calls-0.1/0-0'],
    'gen_ai.request.model': ['string_value', 'm'],
    'gen_ai.request.temperature': ['double_value', 1],
    'gen_ai.request.top_p': ['double_value', 0.5],
    'gen_ai.request.top_k': ['double_value', 20],
    'gen_ai.request.choice.count': ['int_value', '2'],
    'gen_ai.response.id': ['string_value', id(1)],
    'gen_ai.response.model': ['string_value', 'calls@0'],
    'gen_ai.response.finish_reasons': ['array_value', ['stop', 'length']],
    'gen_ai.usage.input_tokens': ['int_value', '3'],
    'gen_ai.usage.output_tokens': ['int_value', '3'],
    'trialgate.policy_version': ['int_value', '0'],
    'trialgate.seconds_to_first_token': ['double_value', 1],
    'trialgate.stream': ['bool_value', true],
  });
  expect(await only('text_completion m')).toMatchObject({
    links: [],
    error: 'engine_500',
    attributes: { 'error.type': ['string_value', 'engine_500'], 'http.response.status_code': ['int_value', '502'] },
  });
  expect(JSON.stringify(spans)).not.toContain('secret');
});

test('the first 1,000 requests of a trial are spans, however many replies each has, and the trial says how many are left out', async () => {
  const run = await new LoggedRun(store.db, 'many').begin();
  await run.trainStep(0);
  const trialId = 'many-0.1/0-0';
  await store.db.update(trials).set({ status: 'created' }).where(eq(trials.id, trialId));
  const records = Array.from({ length: 1003 }, () => {
    const made = callRecord({ trialId });
    return { ...made, choices: [made.choices[0], { ...made.choices[0], id: randomUUID() }] as const };
  });
  await recordCalls(store.db, records);
  await log('many');
  expect(await named('chat m')).toHaveLength(1000);
  const trial = (await named('rl.sample')).find(({ attributes }) => attributes['trialgate.trial']?.[1] === trialId);
  expect(trial?.attributes).toMatchObject({
    'trialgate.calls': ['int_value', '1003'],
    'trialgate.calls_left_out': ['int_value', '3'],
  });
});

test('a trial has its outcome, its rewards as doubles, and its verifier as a span, in the trace of its iteration', async () => {
  const run = await new LoggedRun(store.db, 'trial').begin();
  await run.trainStep(0);
  await callModel('trial');
  await store.db.update(trials).set({ outcome: 'agent_error', rewards: null }).where(eq(trials.id, 'trial-0.1/0-1'));
  await run.end();
  await log('trial');
  const [good, bad] = await named('rl.sample');
  const [group, loop, reward] = [await only('rl.sample.group'), await only('rl.loop'), await only('rl.reward')];
  expect(good).toMatchObject({ trace: loop.trace, parent: group.span, error: null });
  expect(good?.attributes).toMatchObject({
    'trialgate.reward.reward': ['double_value', 1],
    'trialgate.outcome': ['string_value', 'scored'],
    'trialgate.calls': ['int_value', '2'],
    'trialgate.trial_index': ['int_value', '0'],
  });
  expect(reward).toMatchObject({ parent: good?.span, attributes: { 'trialgate.reward.reward': ['double_value', 1] } });
  expect(reward.end - reward.start).toBe(2000);
  expect(bad).toMatchObject({
    error: 'agent_error',
    attributes: { 'trialgate.outcome': ['string_value', 'agent_error'] },
  });
  expect(group).toMatchObject({ trace: loop.trace, parent: loop.span });
  expect(group.attributes).toMatchObject({ 'rl.sample.batch_size': ['int_value', '2'] });
  expect(loop).toMatchObject({ parent: '', links: [keyOf(await only('rl.run'))] });
  expect(loop.attributes).toMatchObject({
    'rl.loop.iteration': ['int_value', '0'],
    'trialgate.seconds.publish': ['double_value', 4],
  });
});

test('spans name their run and model, and the user’s own service name wins', async () => {
  const run = await new LoggedRun(store.db, 'named').begin();
  await run.end();
  await log('named');
  const own = { 'service.name': 'trialgate', 'rl.system': 'trialgate', 'rl.run.id': 'named', 'rl.model.name': 'm' };
  expect((await only('rl.run')).resource).toMatchObject({ ...own, 'rl.algorithm': 'grpo' });
  vi.stubEnv('OTEL_RESOURCE_ATTRIBUTES', 'service.name=ours,deployment.environment.name=test');
  const again = await new LoggedRun(store.db, 'again').begin();
  await again.end();
  await log('again');
  const [, other] = await named('rl.run');
  expect(other?.resource).toMatchObject({ 'service.name': 'ours', 'deployment.environment.name': 'test' });
});

const groupOf = (run: string) => eq(groups.id, `${run}/0.1/0`);

/** Takes a group out of its batch, or puts it back. */
const setBatch = (run: string, batchIteration: number | null) =>
  store.db
    .update(groups)
    .set({ batchIteration, batchTake: batchIteration === null ? null : 1 })
    .where(groupOf(run));

test('a group is sent when a batch has it, and not while a trial runs, also long after its deadline if the run is blocked or was resumed', async () => {
  const run = await new LoggedRun(store.db, 'open').begin([setting()]);
  await run.trainStep(0);
  const take = and(eq(iterations.runId, 'open'), eq(iterations.iteration, 0));
  await store.db.update(iterations).set({ status: 'open' }).where(take);
  const second = eq(trials.id, 'open-0.1/0-1');
  const hasSent = async (count: number) => {
    await log('open');
    expect(await lines()).toHaveLength(count);
  };
  await setBatch('open', null);
  await hasSent(0);
  await setBatch('open', 0);
  await store.db.update(trials).set({ outcome: null }).where(second);
  await hasSent(0);
  const longAgo = new Date(Date.now() - 48 * 3600_000);
  await store.db.update(groups).set({ deadlineAt: longAgo }).where(groupOf('open'));
  await run.end('blocked');
  await hasSent(0);
  await store.db.update(runs).set({ status: 'running', resumedAt: new Date() }).where(eq(runs.id, 'open'));
  await hasSent(0);
  await store.db.update(trials).set({ outcome: 'scored' }).where(second);
  await hasSent(3);
});

test('a group of a batch is over although infrastructure errors left a trial without an outcome and another one was never opened', async () => {
  const run = await new LoggedRun(store.db, 'infra').begin([setting()]);
  await run.trainStep(0);
  await store.db.update(groups).set({ size: 3 }).where(groupOf('infra'));
  const trialId = 'infra-0.1/0-1';
  await store.db.update(trials).set({ outcome: null }).where(eq(trials.id, trialId));
  await store.db.insert(attempts).values({ trialId, attempt: 1, outcome: 'infra_error', endedAt: new Date() });
  await log('infra');
  expect(await lines()).toEqual(ofIteration('infra', 0));
});

test('a dropped group says why, and is sent again when a resume has opened it and its trials have ended', async () => {
  const run = await new LoggedRun(store.db, 'again').begin([setting()]);
  await run.trainStep(0);
  const second = eq(trials.id, 'again-0.1/0-1');
  const setGroup = (values: Partial<typeof groups.$inferInsert>) =>
    store.db.update(groups).set(values).where(groupOf('again'));
  await setBatch('again', null);
  await store.db.update(trials).set({ outcome: 'agent_error' }).where(second);
  await log('again');
  expect(await named('rl.sample.group')).toEqual([]);
  await following(async () => {
    await setGroup({ dropped: 'failed' });
    await until(() => stateOf('again')?.written === 2);
    await setGroup({ dropped: null, endedAt: null });
    await store.db.update(trials).set({ outcome: null, attempt: 2 }).where(second);
    await store.db.update(runs).set({ resumedAt: new Date() }).where(eq(runs.id, 'again'));
    await store.db.update(trials).set({ outcome: 'scored' }).where(second);
    await setGroup({ endedAt: new Date() });
    await setBatch('again', 0);
    await until(() => stateOf('again')?.written === 3);
  });
  const [before, after] = await named('rl.sample.group');
  expect(before?.attributes['trialgate.dropped']).toEqual(['string_value', 'failed']);
  expect(after && keyOf(after)).toEqual(before && keyOf(before));
  const outcomes = (await named('rl.sample')).map(({ attributes }) => attributes['trialgate.outcome']?.[1]);
  expect(outcomes).toEqual(['scored', 'agent_error', 'scored', 'scored']);
});

test('a group whose deadline passed a day ago is sent as it is', async () => {
  const run = await new LoggedRun(store.db, 'late').begin([setting()]);
  await run.trainStep(0);
  await store.db.update(trials).set({ outcome: null }).where(eq(trials.id, 'late-0.1/0-1'));
  await store.db
    .update(groups)
    .set({ deadlineAt: new Date(Date.now() - 25 * 3600_000) })
    .where(groupOf('late'));
  await log('late');
  expect((await named('rl.sample')).map(({ error }) => error)).toEqual([null, 'open']);
});

test('what a run’s end cut is sent as it is, and again with the same ids when a resumed run has ended it', async () => {
  const run = await new LoggedRun(store.db, 'cut').begin([setting()]);
  await run.trainStep(0);
  const second = eq(trials.id, 'cut-0.1/0-1');
  await store.db.update(trials).set({ outcome: null }).where(second);
  await run.end('cancelled');
  await log('cut');
  await run.end('running');
  await store.db.update(trials).set({ outcome: 'scored' }).where(second);
  await log('cut');
  await log('cut');
  const sent = await named('rl.sample');
  expect(sent.map(({ error }) => error)).toEqual([null, 'open', null, null]);
  expect(sent.slice(2).map(keyOf)).toEqual(sent.slice(0, 2).map(keyOf));
  expect(await named('rl.loop')).toHaveLength(1);
});

test('an iteration that was made again has a trace for each take, and the earlier one is not sent again', async () => {
  const run = await new LoggedRun(store.db, 'redo').begin([setting()]);
  await run.trainStep(0);
  await log('redo');
  await run.redo(0);
  await run.trainStep(0, 2, { take: 2, parent: 0 });
  await run.end();
  await log('redo');
  expect(await lines()).toEqual([...ofIteration('redo', 0), ...ofIteration('redo', 0, 2), 'rl.run']);
  const [first, second] = await named('rl.loop');
  expect(first?.trace).not.toBe(second?.trace);
});

/** Marks trials as those of the batch of an iteration. */
const use = (runId: string, batchIteration: number, ...ids: string[]) =>
  store.db
    .update(trials)
    .set({ batchIteration, batchTake: 1 })
    .where(and(eq(trials.runId, runId), inArray(trials.id, ids)));

test('a train step links to the trials that it used, also of an earlier iteration, and to none that was dropped or has no reward', async () => {
  const run = await new LoggedRun(store.db, 'links').begin();
  for (const iteration of [0, 1, 2]) await run.trainStep(iteration);
  await use('links', 1, 'links-0.1/0-1', 'links-1.1/0-0', 'links-1.1/0-1', 'links-2.1/0-0');
  await store.db.update(trials).set({ rewards: null }).where(eq(trials.id, 'links-1.1/0-1'));
  await store.db.update(groups).set({ dropped: 'no_spread' }).where(eq(groups.id, 'links/2.1/0'));
  await log('links');
  const spans = await named('rl.train');
  const used = spans.find(({ attributes }) => attributes['rl.loop.iteration']?.[1] === '1');
  const trialsOf = await named('rl.sample');
  const linked = used?.links.map(
    (link) =>
      trialsOf.find((span) => span.span === link.span && span.trace === link.trace)?.attributes['trialgate.trial']?.[1],
  );
  expect(linked).toEqual(['links-0.1/0-1', 'links-1.1/0-0']);
  expect(used?.parent).toBe((await named('rl.loop'))[1]?.span);
  expect(used?.attributes).toMatchObject({
    'trialgate.trained_version': ['int_value', '2'],
    'rl.train.batch_size': ['int_value', '2'],
    'trialgate.metric.actor/grad_norm': ['double_value', 2],
    'trialgate.metric.train/reward_mean': ['double_value', 0.5],
  });
  expect(spans.map(({ start, end }) => end - start)).toEqual([20_000, 20_000, 20_000]);
});

test('the train step of a rescored run links to the trials of the run whose batch it trains on again', async () => {
  const source = await new LoggedRun(store.db, 'source').begin();
  await source.trainStep(0);
  await use('source', 0, 'source-0.1/0-0', 'source-0.1/0-1');
  await log('source');
  const run = await new LoggedRun(store.db, 'rescored').begin([], 'source@0');
  await store.db.update(runs).set({ rescores: 'source/0.1' }).where(eq(runs.id, 'rescored'));
  await run.trainStep(0);
  await log('rescored');
  const used = (await named('rl.sample')).slice(0, 2);
  expect((await named('rl.train')).map(({ links }) => links)).toEqual([used.map(keyOf), used.map(keyOf)]);
});

test('a publication is a span from the train step to the last engine that confirmed it, and an evaluation one with its metrics', async () => {
  const run = await new LoggedRun(store.db, 'published').begin();
  await run.trainStep(0);
  await run.evaluate(1);
  const made = new Date(Date.UTC(2026, 0, 1));
  await store.db.update(policyVersions).set({ createdAt: made }).where(eq(policyVersions.version, 1));
  const row = { runId: 'published', version: 1, weightVersion: 'published@1', checksum: 'c' };
  await store.db.insert(publications).values([
    { ...row, replica: 'a', canaryDifference: 0, confirmedAt: new Date(made.getTime() + 4000) },
    { ...row, replica: 'b', canaryDifference: 0.5, confirmedAt: new Date(made.getTime() + 7000) },
  ]);
  await log('published');
  const sync = await only('rl.sync');
  const loop = await only('rl.loop');
  expect(sync).toMatchObject({
    start: made.getTime(),
    end: made.getTime() + 7000,
    trace: loop.trace,
    parent: loop.span,
  });
  expect(sync.attributes).toMatchObject({
    'trialgate.replicas': ['int_value', '2'],
    'trialgate.canary_difference': ['double_value', 0.5],
  });
  const evaluation = await only('rl.evaluate');
  expect(evaluation.attributes).toMatchObject({
    'trialgate.evaluation': ['string_value', 'eval@1'],
    'trialgate.policy_version': ['int_value', '1'],
    'trialgate.metric.val/reward_mean': ['double_value', 0.5],
    'trialgate.metric.val/pass@2': ['double_value', 1],
  });
  const groupsOf = await named('rl.sample.group');
  expect(groupsOf.at(-1)).toMatchObject({ trace: evaluation.trace, parent: evaluation.span });
});

test('engines that confirm a version after its take has ended do not make the publication longer', async () => {
  const run = await new LoggedRun(store.db, 'mended').begin();
  await run.trainStep(0);
  const row = { runId: 'mended', version: 1, weightVersion: 'mended@1', checksum: 'c', canaryDifference: 0 };
  const made = new Date(Date.UTC(2026, 0, 1));
  await store.db.update(policyVersions).set({ createdAt: made }).where(eq(policyVersions.version, 1));
  await store.db.insert(publications).values([
    { ...row, replica: 'a', confirmedAt: new Date(made.getTime() + 4000) },
    { ...row, replica: 'b', confirmedAt: new Date(Date.now() + 3600_000) },
  ]);
  await log('mended');
  const sync = await only('rl.sync');
  expect(sync.end).toBeLessThanOrEqual((await only('rl.loop')).end);
  expect(sync.attributes['trialgate.replicas']).toEqual(['int_value', '1']);
});

test('an evaluation of which a trial never got an outcome is sent a day after its deadline', async () => {
  const run = await new LoggedRun(store.db, 'never').begin();
  await run.evaluateInPart(0);
  const dayAgo = new Date(Date.now() - 25 * 3600_000);
  await store.db.update(groups).set({ deadlineAt: dayAgo }).where(eq(groups.runId, 'never'));
  await log('never');
  expect(await named('rl.evaluate')).toHaveLength(1);
});

test('an evaluation is sent when all of its trials have ended, and one that the run’s end cut as it is', async () => {
  const run = await new LoggedRun(store.db, 'evaluated').begin();
  await run.evaluateInPart(0);
  await log('evaluated');
  expect(await lines()).toEqual([]);
  await run.end('cancelled');
  await log('evaluated');
  expect((await lines()).filter((line) => line.includes('eval@0'))).toHaveLength(4);
  await run.end('running');
  await run.finishEvaluation(0);
  await log('evaluated');
  await log('evaluated');
  expect((await named('rl.evaluate')).map(keyOf)).toEqual(
    Array(2).fill(keyOf((await named('rl.evaluate'))[0] ?? { trace: '', span: '' })),
  );
});

test('spans that the receiver refuses are left out and reported, and keep no other from being sent', async () => {
  const run = await new LoggedRun(store.db, 'refused').begin([setting()]);
  await run.trainStep(0);
  await receiver.fail({ refuse: 'rl.sample.group' });
  await following(async (reports) => {
    await run.end();
    await until(() => stateOf('refused')?.complete);
    const what = `1 spans of group 0.1/0 after 2 attempts were refused, and are not sent again: ${receiver.url}/v1/traces answered 400: as the test says`;
    expect(reports).toEqual([`the logger otel of run refused: ${what}`]);
  });
  expect(await lines()).toEqual([...ofIteration('refused', 0).filter((line) => !line.includes('group')), 'rl.run']);
  await receiver.fail({});
  await log('refused');
  expect(await named('rl.sample.group')).toEqual([]);
});

test('a receiver that took a part of a request is reported, and nothing is sent twice', async () => {
  const run = await new LoggedRun(store.db, 'partial').begin([setting()]);
  await receiver.fail({ partial: true });
  await following(async (reports) => {
    await run.end();
    await until(() => stateOf('partial')?.complete);
    expect(reports).toEqual([expect.stringContaining('took a part: one too many')]);
  });
  await log('partial');
  expect(await lines()).toEqual(['rl.run']);
});

test('parts that the receiver never takes keep no other from being sent, however many they are', async () => {
  const run = await new LoggedRun(store.db, 'stumbles').begin();
  const count = 5;
  for (let iteration = 0; iteration < count; iteration += 1) await run.trainStep(iteration);
  await receiver.fail({ stumble: [0, 1, 2, 3].map((iteration) => `stumbles/${iteration}.1/0`) });
  await expect(log('stumbles')).rejects.toThrow(
    /^spans are missing \(4 parts\): group 0\.1\/0 after 2 attempts: .* answered 500/,
  );
  expect(await named('rl.loop')).toHaveLength(count);
  expect(await named('rl.sample.group')).toHaveLength(1);
});

test.each([302, 304, 402, 410, 415, 426])(
  'spans for which the receiver answers %i are kept until it takes them',
  async (status) => {
    const run = await new LoggedRun(store.db, 'kept').begin();
    await run.end();
    await receiver.fail({ status });
    await expect(log('kept')).rejects.toThrow(`the receiver ${receiver.url}/v1/traces answered ${status}`);
    await receiver.fail({});
    await log('kept');
    expect(await lines()).toEqual(['rl.run']);
  },
);

test('an answer that never ends is ended by the time limit', async () => {
  vi.stubEnv('OTEL_EXPORTER_OTLP_TIMEOUT', '1');
  const run = await new LoggedRun(store.db, 'drips').begin();
  await run.end();
  await receiver.fail({ drip: true });
  await expect(log('drips')).rejects.toThrow(`no answer of the receiver ${receiver.url}/v1/traces: TooSlow`);
});

test('spans whose times cannot be encoded are left out and reported, and keep no other from being sent', async () => {
  const run = await new LoggedRun(store.db, 'times').begin([setting()]);
  await run.trainStep(0);
  // OpenTelemetry has no time before 1970, and an infinite time is no time in JavaScript.
  await store.db
    .update(trials)
    .set({ createdAt: new Date(-1000) })
    .where(eq(trials.id, 'times-0.1/0-1'));
  await store.db
    .update(groups)
    .set({ openedAt: sql`'infinity'` })
    .where(groupOf('times'));
  await following(async (reports) => {
    await run.end();
    await until(() => stateOf('times')?.complete);
    const what = '2 spans of group 0.1/0 after 2 attempts were refused, and are not sent again: cannot be encoded';
    expect(reports).toEqual([`the logger otel of run times: ${what}`]);
  });
  const [first = '', , , ...further] = ofIteration('times', 0);
  expect(await lines()).toEqual([first, ...further, 'rl.run']);
});

test('two tenants behind one address are two places', async () => {
  const run = await new LoggedRun(store.db, 'tenants').begin();
  await run.end();
  for (const tenant of ['a', 'b']) {
    vi.stubEnv('OTEL_EXPORTER_OTLP_TRACES_ENDPOINT', `${receiver.url}/v1/traces?tenant=${tenant}`);
    await logOnce({ db: store.db, home, runId: 'tenants', logger: { name: 'otel' } });
  }
  expect(await lines()).toEqual(['rl.run', 'rl.run']);
});

test('a line of the state that a full disk cut does not count, and the next one is whole', async () => {
  const run = await new LoggedRun(store.db, 'torn').begin();
  await run.trainStep(0);
  await log('torn');
  const folder = join(home, 'loggers/otel');
  const [file = ''] = await readdir(folder);
  await appendFile(join(folder, file), 'group 1.1');
  await run.trainStep(1);
  await log('torn');
  await log('torn');
  expect(await lines()).toEqual([...ofIteration('torn', 0), ...ofIteration('torn', 1)]);
});

test('on a full disk nothing is sent that could not be noted, and all of it once there is room', async ({ skip }) => {
  const refusal = await SmallDisk.refusal();
  if (refusal !== null) skip(`this machine mounts no small disk: ${refusal}`);
  const run = await new LoggedRun(store.db, 'full').begin();
  await run.trainStep(0);
  const disk = await SmallDisk.mount(join(home, 'disk'), 1);
  try {
    const write = () => logOnce({ db: store.db, home, runId: 'full', logger: { ...setting(), folder: disk.folder } });
    await disk.whileFull(() => expect(write()).rejects.toThrow('No space left on device'), signal);
    expect(await lines()).toEqual([]);
    await write();
    expect(await lines()).toEqual(ofIteration('full', 0));
  } finally {
    await disk.unmount();
  }
});

test('a receiver that does not answer is named without the key and the password of its address', async () => {
  const run = await new LoggedRun(store.db, 'away').begin();
  await run.end();
  await receiver.fail({ status: 401 });
  const whole = new URL('/v1/traces?key=secret', receiver.url);
  [whole.username, whole.password] = ['me', 'secret'];
  vi.stubEnv('OTEL_EXPORTER_OTLP_TRACES_ENDPOINT', whole.href);
  const logger = { name: 'otel' } as const;
  const answered = logOnce({ db: store.db, home, runId: 'away', logger });
  await expect(answered).rejects.toThrow(`the receiver ${receiver.url}/v1/traces answered 401`);
  await expect(answered).rejects.not.toThrow('secret');
  vi.stubEnv('OTEL_EXPORTER_OTLP_TRACES_ENDPOINT', 'http://me:secret@127.0.0.1:9/v1/traces?key=secret');
  const silent = logOnce({ db: store.db, home, runId: 'away', logger });
  await expect(silent).rejects.toThrow('no answer of the receiver http://127.0.0.1:9/v1/traces: ConnectionError');
  await expect(silent).rejects.not.toThrow('secret');
});

test('an activity worker sends the spans of a run with the headers of its environment', async () => {
  vi.stubEnv('OTEL_EXPORTER_OTLP_ENDPOINT', receiver.url);
  vi.stubEnv('OTEL_EXPORTER_OTLP_HEADERS', 'x-key=of%20the%20user');
  await withTemporaryStack(
    async ({ plan }) => {
      const db = openDatabase(plan.databaseUrl);
      try {
        const run = await new LoggedRun(db, 'worker').begin(['otel']);
        await run.trainStep(0);
        await until(async () => (await receiver.received()).spans.length === 5);
        expect((await receiver.received()).headers).toMatchObject({ 'x-key': 'of the user' });
        await run.end();
        const folder = plan.folders.home;
        const args = [
          INSTALLS.main,
          'export-metrics',
          'worker',
          '--to',
          `{name: otel, endpoint: "${receiver.url}", folder: ${home}}`,
        ];
        const { stdout } = await promisify(execFile)(INSTALLS.node, [
          ...args,
          '--home',
          folder,
          '--database-url',
          plan.databaseUrl,
        ]);
        expect(stdout).toContain('otel: has 3 parts of worker');
      } finally {
        await db.$client.end();
      }
    },
    signal,
    ['postgres', 'temporal', 'gateway', 'activity-worker'],
    { TRIALGATE_ENGINES: 'http://127.0.0.1:9' },
  );
});
