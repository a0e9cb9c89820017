import { and, eq, lt } from 'drizzle-orm';
import { beforeAll, expect, test } from 'vitest';
import { ADMIN_KEY, useSharedGateway } from '../../tests/support/harness/gateways.ts';
import { recordLosses, recordRun, recordConversation } from '../../tests/support/scenarios/recorded-run.ts';
import {
  attempts as attemptRows,
  batches as batchRows,
  calls,
  groups as groupRows,
  iterations,
  longCalls,
  policyVersions,
  publications,
  runs,
} from '../../store/schema.ts';
import { completeTrial } from '../../store/queries/complete-trial.ts';
import { contentOf } from '../../store/calls/content.ts';
import { itemKey } from '../../store/calls/outline.ts';
import { openAttempt } from '../../store/queries/open-attempt.ts';
import { sealAttempt } from '../../store/queries/seal-attempt.ts';
import { recordCalls, type CallRecord } from '../../store/queries/record-calls.ts';
import { callRecord } from '../../tests/support/scenarios/call-record.ts';
import * as schemas from './openapi/run-schemas.ts';

const gateway = useSharedGateway();
const TEXTS = {
  system: 'Be brief.',
  user: 'Repair it.',
  reply: 'I look.',
  name: 'read',
  tool: 'a.py',
  output: 'x = 1',
};

beforeAll(async () => {
  await recordRun(gateway.db, 'run', { iterations: 3, groups: 2, size: 4 });
  await recordLosses(gateway.db, 'run', 2);
  await recordConversation(gateway.db, { trialId: 'talk', place: { runId: 'run', groupId: 'run/2.1/0' } }, TEXTS, 0.5);
});

const read = async (path: string) => (await gateway.admin('GET', path)).json();

test('the replies about runs match the schemas of the API document exactly', async () => {
  for (const [path, schema] of [
    ['/runs', schemas.runList],
    ['/runs/run', schemas.runDetails],
    ['/runs/run/iterations', schemas.iterationList],
    ['/runs/run/groups', schemas.groupList],
    ['/runs/run/iterations/2/timeline', schemas.timeline],
    ['/runs/run/dropped', schemas.droppedWork],
    ['/sessions/talk/transcript', schemas.transcript],
  ] as const) {
    const reply = await read(path);
    expect(schema.parse(reply)).toEqual(reply);
  }
});

test('runs are listed page by page, the newest first, with the mean rewards of their batches', async () => {
  const old = { id: 'older', config: {}, createdAt: new Date(0) };
  await gateway.db.insert(runs).values(old).onConflictDoNothing();
  const first = await read('/runs?limit=1');
  expect(first).toMatchObject({ runs: [{ run_id: 'run', iteration: 2 }], next_cursor: 'run' });
  expect(first.runs[0].rewards).toHaveLength(3);
  expect(await read('/runs?limit=1&cursor=run')).toMatchObject({
    runs: [{ run_id: 'older', iteration: null, rewards: [] }],
    next_cursor: null,
  });
});

test('evaluations have pass@k for each k for which their tasks have enough trials', async () => {
  const { evaluations } = await read('/runs/run');
  // The numbers of the tasks' 4 trials that pass are 2, 1, 1 and 2 before the run, and 3, 3, 2 and 3 after it.
  expect(evaluations).toMatchObject([
    { id: 'eval@0', trials: 16, pass_at: { 1: 0.375, 2: expect.closeTo(2 / 3, 9), 4: 1 } },
    { id: 'eval@3', trials: 16, pass_at: { 1: 0.6875, 2: expect.closeTo((3 + 5 / 6) / 4, 9), 4: 1 } },
  ]);
});

test('iterations are read page by page with the rewards, outcomes and metrics of their own trials', async () => {
  const page = await read('/runs/run/iterations?limit=2');
  expect(page.iterations.map(({ iteration }: { iteration: number }) => iteration)).toEqual([0, 1]);
  expect(page.next_from).toBe(2);
  expect(page.iterations[0]).toMatchObject({
    groups: 2,
    trials: { scored: 8 },
    reward: { count: 8 },
    metrics: { 'actor/lr': 1e-6 },
    seconds: { batch: 0.2 },
  });
  const { rewards } = (await read('/runs?limit=1')).runs[0];
  expect(page.iterations[1].reward.mean).toBeCloseTo(rewards[1], 12);
  expect(await read('/runs/run/iterations?from=2')).toMatchObject({
    iterations: [
      { iteration: 2, dropped_groups: 1, unrewarded_groups: 1, trials: { scored: 9, truncated: 1, agent_error: 1 } },
    ],
    next_from: null,
  });
});

test('groups come with their trials, those whose rewards vary most first', async () => {
  const { groups } = await read('/runs/run/groups?iteration=2');
  const variances = groups.map(({ variance }: { variance: number | null }) => variance ?? -1);
  expect(variances).toEqual(variances.toSorted((a: number, b: number) => b - a));
  expect(variances[0]).toBeGreaterThan(0);
  expect(groups.at(-1)).toMatchObject({ dropped: 'stale', variance: null, trials: [{ attempt: 2 }, { attempt: 1 }] });
  expect((await read('/runs/run/groups?dropped=stale')).groups).toHaveLength(1);
  expect((await read('/runs/run/groups?evaluation=eval@0')).groups).toHaveLength(4);
  expect(await read('/runs/run/groups?iteration=2&limit=2')).toMatchObject({ next_offset: 2 });
});

test('groups and timelines have only the trials with the outcome, agent and rewards that were asked for; means are of all trials', async () => {
  type Reply = { groups: { mean: number | null; trials: { outcome: string; reward: number | null }[] }[] };
  const all: Reply = await read('/runs/run/groups?iteration=2');
  const rewards = all.groups.flatMap(({ trials: own }) => own.flatMap(({ reward }) => reward ?? []));
  for (const path of ['/runs/run/groups?iteration=2&', '/runs/run/iterations/2/timeline?']) {
    const trialsOf = async (filter: string) => {
      const { groups }: Reply = await read(`${path}${filter}`);
      expect(groups.every(({ trials: own }) => own.length > 0)).toBe(true);
      return groups.flatMap(({ trials: own }) => own);
    };
    expect((await trialsOf('outcome=agent_error')).map(({ outcome }) => outcome)).toEqual(['agent_error']);
    expect(await trialsOf('outcome=open')).toEqual([]);
    expect(await trialsOf('agent=nobody')).toEqual([]);
    expect(await trialsOf('agent=oneshot&outcome=truncated')).toHaveLength(1);
    const some = rewards.filter((reward) => reward >= 0.1 && reward < 1);
    expect(some.length).toBeGreaterThan(0);
    const found = await trialsOf('reward_min=0.1&reward_max=0.99');
    expect(found.map(({ reward }) => reward).toSorted()).toEqual(some.toSorted());
    for (const bad of [
      'outcome=won',
      'agent=',
      'agent=%00',
      'reward_min=',
      'reward_max=x',
      'reward_min=2&reward_max=1',
    ])
      expect([bad, (await gateway.admin('GET', `${path}${bad}`)).status]).toEqual([bad, 400]);
  }
  const refused = await gateway.admin('GET', '/runs/run/groups?reward_min=2&reward_max=1');
  expect((await refused.json()).error.message).toBe(
    'reward_min: is more than reward_max, so no trial has such a reward',
  );
  const filtered: Reply = await read('/runs/run/groups?iteration=2&reward_min=1');
  expect(filtered.groups.map(({ mean }) => mean)).toEqual(
    all.groups.filter(({ trials: own }) => own.some(({ reward }) => reward === 1)).map(({ mean }) => mean),
  );
});

test('lost work is counted by reason', async () => {
  expect(await read('/runs/run/dropped')).toEqual({
    groups: [{ reason: 'stale', groups: 1 }],
    trials: expect.arrayContaining([
      { outcome: 'truncated', trials: 1, examples: ['run-2.1-90-0'] },
      { outcome: 'agent_error', trials: 1, examples: ['run-2.1-90-1'] },
    ]),
    attempts: [{ reason: 'the host was lost', evidence: 'host', attempts: 1, trials: ['run-2.1-90-0'] }],
    calls: [{ reason: 'truncated_sampling', calls: 1, trials: ['run-2.1-90-0'] }],
    calls_since: 0,
  });
});

test('a transcript has each message once, and says which call each call continues', async () => {
  const whole = await read('/sessions/talk/transcript');
  expect(whole).toMatchObject({ reward: 0.5, outcome: 'scored', next: null, attempts: [{ attempt: 1 }] });
  const [first, second] = whole.calls;
  expect([first.continues, second.continues]).toEqual([null, 1]);
  expect(first.messages.map(({ role }: { role: string }) => role)).toEqual(['system', 'user']);
  expect(second.messages).toEqual([{ role: 'tool', tool_call_id: 'a', content: 'x = 1' }]);
  expect([first.tools, second.tools]).toEqual([expect.any(Array), null]);
  expect([first.shares_tools, second.shares_tools]).toEqual([null, { number: 1, tools: 1 }]);
  expect(second.reply).toMatchObject({ content: 'Done. I look.' });
  expect(await read('/sessions/talk/transcript?limit=1')).toMatchObject({ calls: [first], next: 1 });
  expect(await read('/sessions/talk/transcript?after=1')).toMatchObject({ calls: [second], next: null });
});

/** Calls of one trial, each with one more message than the one before. */
async function recordLong(trialId: string, many: number): Promise<CallRecord[]> {
  await openAttempt(gateway.db, { trialId, attempt: 1 });
  const records: CallRecord[] = [];
  const messages: unknown[] = [{ role: 'system', content: 'Be brief.' }];
  const keys: string[] = messages.map((message) => itemKey(contentOf(message)));
  const ids = Array.from({ length: 10 }, (_, i) => i);
  for (let i = 0; i < many; i++) {
    const before = records.at(-1);
    const base = before && {
      callId: before.id,
      tokenIds: Int32Array.from(ids),
      lists: { messages: [...keys] },
      text: '',
    };
    const message = { role: 'user', content: `message ${i}` };
    messages.push(message);
    keys.push(itemKey(contentOf(message)));
    ids.push(i, i);
    records.push(
      callRecord({
        trialId,
        request: { messages: [...messages] },
        base: base ?? null,
        parentId: before?.id ?? null,
        continuation: before ? 'clean' : null,
        promptTokenIds: Int32Array.from(ids),
        response: { choices: [{ message: { role: 'assistant', content: `reply ${i}` } }] },
      }),
    );
  }
  for (const record of records) await recordCalls(gateway.db, [record]);
  return records;
}

test('a page of a transcript is read without the calls before it, and has the number of each call and the length of its whole prompt', async () => {
  await recordLong('long', 60);
  // Whoever loaded these would fail.
  await gateway.db
    .update(calls)
    .set({ request: Buffer.from('no JSON'), response: Buffer.from('no JSON') })
    .where(and(eq(calls.trialId, 'long'), lt(calls.sharedIds, 90)));
  const page = await read('/sessions/long/transcript?after=50&limit=3');
  expect(page.calls.map(({ number, continues }: { number: number; continues: number }) => [number, continues])).toEqual(
    [
      [51, 50],
      [52, 51],
      [53, 52],
    ],
  );
  expect(page.calls[1]).toMatchObject({
    messages: [{ content: 'message 51' }],
    reply: { content: 'reply 51' },
    prompt_tokens: 10 + 2 * 52,
  });
  expect([page.next, page.attempts, page.outputs, page.refusals]).toEqual([53, null, null, null]);
  expect(await read('/sessions/long/transcript?after=59')).toMatchObject({ calls: [{ number: 60 }], next: null });
});

test('the whole request of a call is read as it was, with the messages that its row does not have; another session’s call is not found', async () => {
  const { calls: shown } = await read('/sessions/talk/transcript');
  const path = `/sessions/talk/calls/${shown[1].call_id}/request`;
  const reply = await read(path);
  expect(schemas.callRequest.parse(reply)).toEqual(reply);
  expect(reply).toMatchObject({ call_id: shown[1].call_id, attempt: 1, path: '/chat/completions' });
  const body = JSON.parse(reply.body);
  expect(body.messages.map(({ role }: { role: string }) => role)).toEqual(['system', 'user', 'assistant', 'tool']);
  expect(body.tools).toHaveLength(1);
  await openAttempt(gateway.db, { trialId: 'other', attempt: 1 });
  const refused = callRecord({ trialId: 'other', status: 'failed', httpStatus: 400, request: {} });
  await recordCalls(gateway.db, [refused]);
  for (const [wrong, status] of [
    [path.replace('talk', 'other'), 404],
    [`/sessions/other/calls/${refused.id}/request`, 404],
    ['/sessions/talk/calls/none/request', 400],
  ] as const)
    expect([wrong, (await gateway.admin('GET', wrong)).status]).toEqual([wrong, status]);
});

test('a call that begins its conversation again continues none: it says how many messages it shares, and with which call', async () => {
  const [, second] = await recordLong('compacted', 2);
  const kept = { role: 'system', content: 'Be brief.' };
  const sentBefore = { role: 'user', content: 'message 0' };
  const summary = { role: 'user', content: 'A summary of what was said.' };
  const key = (message: unknown): string => itemKey(contentOf(message));
  const again = callRecord({
    trialId: 'compacted',
    request: { messages: [kept, summary, sentBefore] },
    base: second
      ? {
          callId: second.id,
          tokenIds: Int32Array.of(),
          lists: { messages: [key(kept), key(sentBefore), key({ role: 'user', content: 'message 1' })] },
          text: '',
        }
      : null,
    known: new Set([key(sentBefore)]),
    continuation: 'branched',
    promptTokenIds: Int32Array.of(1, 2),
  });
  await recordCalls(gateway.db, [again]);
  expect(await read('/sessions/compacted/transcript?after=2')).toMatchObject({
    // The last one is found in a call before the page.
    calls: [{ number: 3, continues: null, shares: { number: 2, messages: 1 }, messages: [summary, sentBefore] }],
  });
  expect(await read('/sessions/compacted/tokens')).toEqual(await read('/sessions/compacted/samples'));
});

test('a transcript says in a sentence why a call is not trained', async () => {
  await openAttempt(gateway.db, { trialId: 'forced', attempt: 1 });
  const sampling = { constraints: ['strict_tools'], constrained_decoding: 'enforce' };
  const choice = { untrainable: 'sampling_not_reproducible' };
  await recordCalls(gateway.db, [callRecord({ trialId: 'forced', sampling, choice })]);
  expect(await read('/sessions/forced/transcript')).toMatchObject({
    calls: [{ ...choice, why_untrainable: expect.stringContaining('Set `constrained_decoding: hint`') }],
  });
});

test('a transcript says in a sentence that the model was not shown a request’s tools', async () => {
  await openAttempt(gateway.db, { trialId: 'blind', attempt: 1 });
  for (const sampling of [{ tools_not_shown: 2 }, {}])
    await recordCalls(gateway.db, [callRecord({ trialId: 'blind', sampling })]);
  expect(await read('/sessions/blind/transcript')).toMatchObject({
    calls: [
      { tools_not_shown: expect.stringMatching(/^the request has 2 tools, .* Use a model/) },
      { tools_not_shown: null },
    ],
  });
});

test('a group has the name of its agent, as its trials have it, in place of the agent’s file', async () => {
  const group = { id: 'run/2.1/0', agent: '/x/agent.yaml' };
  await gateway.db.update(groupRows).set(group).where(eq(groupRows.id, group.id));
  const [{ trials }] = (await read(`/runs/run/groups?group_id=${group.id}`)).groups;
  expect(trials[0].agent).not.toBe(group.agent);
  expect((await read(`/runs/run/groups?group_id=${group.id}`)).groups).toMatchObject([{ agent: trials[0].agent }]);
});

test('after a redo the groups of both takes are told apart, and only those of the last take count as dropped work', async () => {
  await recordRun(gateway.db, 'redone', { iterations: 1, groups: 2, size: 2 });
  await recordLosses(gateway.db, 'redone', 0);
  const first = eq(iterations.runId, 'redone');
  await gateway.db.update(iterations).set({ status: 'superseded' }).where(first);
  await gateway.db
    .insert(iterations)
    .values({ runId: 'redone', iteration: 0, take: 2, policyVersion: 0, trainedVersion: null });
  const { groups } = await read('/runs/redone/groups?iteration=0&take=1');
  expect(groups.map(({ superseded }: { superseded: boolean }) => superseded)).toEqual([true, true, true]);
  expect((await read('/runs/redone/groups?iteration=0&take=2')).groups).toEqual([]);
  expect(await read('/runs/redone/dropped')).toMatchObject({ groups: [], trials: [], attempts: [], calls: [] });
  // All takes of an iteration are on one page, whatever its limit.
  expect(await read('/runs/redone/iterations?limit=1')).toMatchObject({
    iterations: [{ take: 1 }, { take: 2 }],
    next_from: 1,
  });
});

test('a timeline has every attempt of a take’s trials with its times, and the times of its step', async () => {
  const line = await read('/runs/run/iterations/2/timeline');
  expect(line).toMatchObject({
    iteration: 2,
    take: 1,
    newest_take: 1,
    status: 'done',
    trained_version: 3,
    waits_for: null,
  });
  expect(line.groups.map(({ trials: own }: { trials: unknown[] }) => own.length)).toEqual([5, 4, 2]);
  const [again, failed] = line.groups[2].trials;
  expect(again).toMatchObject({
    outcome: 'truncated',
    attempts: [
      { attempt: 1, outcome: 'infra_error', reason: 'the host was lost', evidence: 'host' },
      { attempt: 2, outcome: 'truncated' },
    ],
  });
  expect(failed).toMatchObject({ outcome: 'agent_error', attempts: [{ attempt: 1 }] });
  const talk = line.groups[0].trials.find(({ trial_id: id }: { trial_id: string }) => id === 'talk');
  expect(talk.attempts[0].seconds).toEqual({ sandbox: 0.3, agent: 7.1, verify: 1.2 });
  expect(talk.completed_at).toBeCloseTo(talk.attempts[0].ended_at, 3);
  const [first] = await readGroupsOfTwoPages();
  expect(first).toMatchObject({ group_id: 'run/2.1/0' });
});

/** Reads the timeline by pages of two groups. */
async function readGroupsOfTwoPages(): Promise<{ group_id: string }[]> {
  const one = await read('/runs/run/iterations/2/timeline?limit=2');
  const other = await read('/runs/run/iterations/2/timeline?limit=2&offset=2');
  expect([one.next_offset, other.next_offset]).toEqual([2, null]);
  const ids = [...one.groups, ...other.groups].map(({ group_id: id }) => id);
  expect(ids).toEqual(['run/2.1/0', 'run/2.1/1', 'run/2.1/90']);
  return one.groups;
}

test('the timeline of an open take says what its step waits for, from its groups to the publication', async () => {
  const runId = 'waiting';
  const path = `/runs/${runId}/iterations/0/timeline`;
  await gateway.db.insert(runs).values({ id: runId, config: {} });
  await gateway.db.insert(iterations).values({ runId, iteration: 0, take: 1, policyVersion: 0 });
  expect((await read(path)).waits_for).toMatch(
    /^The step waits for its next groups or its batch: no group is open\. If/,
  );
  const group = { runId, kind: 'train' as const, iteration: 0, take: 1, task: 't', agent: 'a', policyVersion: 0 };
  await gateway.db.insert(groupRows).values([
    { ...group, id: 'waiting/0.1/0', ordinal: 0, size: 3 },
    { ...group, id: 'waiting/0.1/1', ordinal: 1, size: 1, endedAt: new Date() },
  ]);
  const slow = { trialId: 'slow', attempt: 1, runId, groupId: 'waiting/0.1/0', trialIndex: 0 };
  await openAttempt(gateway.db, slow);
  await openAttempt(gateway.db, { ...slow, trialId: 'verified', trialIndex: 1 });
  await completeTrial(gateway.db, { trialId: 'verified', attempt: 1 });
  await gateway.db
    .update(attemptRows)
    .set({ openedAt: new Date(Date.now() - 100_000) })
    .where(eq(attemptRows.trialId, 'slow'));
  const startedAt = new Date(Date.now() - 60_000);
  const call = { callId: crypto.randomUUID(), trialId: 'slow', attempt: 1, runId, stream: true, constrained: false };
  await gateway.db.insert(longCalls).values({ ...call, startedAt });
  const line = await read(path);
  expect(line.waits_for).toMatch(
    /^The step waits for 1 group: 2 trials under way \(1 being verified\), 1 trial not opened\. Longest: slow, \d+ s\.$/,
  );
  const [own] = line.groups;
  expect(own).toMatchObject({ size: 3, trials: [{ trial_id: 'slow' }, { trial_id: 'verified', call_since: null }] });
  expect(own.trials[0].call_since).toBeCloseTo(startedAt.getTime() / 1000, 3);
  await gateway.db
    .insert(batchRows)
    .values({ runId, iteration: 0, take: 1, sha256: 'b', path: '/b', samples: 1, trials: 1 });
  expect((await read(path)).waits_for).toMatch(/^The step waits for its train step/);
  await gateway.db.insert(policyVersions).values({
    runId,
    version: 1,
    iteration: 0,
    take: 1,
    stepKey: 'k',
    checkpoint: '/c',
    checkpointSha256: 'c',
    canary: { token_ids: [], logprobs: [] },
  });
  expect((await read(path)).waits_for).toBe('The step waits for the publication of version 1.');
  const confirmed = { runId, version: 1, weightVersion: 'waiting@1', checksum: 's', canaryDifference: 0 };
  await gateway.db.insert(publications).values({ ...confirmed, replica: 'http://one' });
  expect(await read(path)).toMatchObject({
    trained_version: 1,
    publications: [{ version: 1, replicas: 1 }],
    waits_for: 'The step waits for its end: version 1 is published.',
  });
  // A replica that confirms a version again does not take it from its iteration.
  await gateway.db.update(iterations).set({ status: 'done', endedAt: new Date() }).where(eq(iterations.runId, runId));
  await gateway.db
    .update(publications)
    .set({ confirmedAt: new Date(Date.now() + 60_000) })
    .where(eq(publications.runId, runId));
  expect(await read(path)).toMatchObject({ publications: [{ version: 1, replicas: 1 }], waits_for: null });
  await gateway.db.update(iterations).set({ status: 'open', endedAt: null }).where(eq(iterations.runId, runId));
  await gateway.db.update(runs).set({ status: 'blocked', reason: 'an engine is lost' }).where(eq(runs.id, runId));
  expect((await read(path)).waits_for).toBe('The run is blocked: an engine is lost');
});

/** Opens iterations of a run, the last of which is open, and groups of these. */
async function openTakes(runId: string, last: number, rows: Partial<typeof groupRows.$inferInsert>[]): Promise<void> {
  await gateway.db.insert(runs).values({ id: runId, config: { max_staleness: 1 } });
  for (let iteration = 0; iteration <= last; iteration++)
    await gateway.db
      .insert(iterations)
      .values({ runId, iteration, take: 1, policyVersion: 0, status: iteration < last ? 'done' : 'open' });
  const group = { runId, kind: 'train' as const, take: 1, task: 't', agent: 'a', policyVersion: 0, size: 1 };
  await gateway.db
    .insert(groupRows)
    .values(rows.map((row, ordinal) => ({ iteration: last, ...group, id: `${runId}/${ordinal}`, ordinal, ...row })));
}

test('stragglers are not what an open group’s step waits for; a trial between two attempts, and groups of earlier iterations, are', async () => {
  await openTakes('late', 1, [{ endedAt: new Date() }, { size: 2 }, { iteration: 0 }]);
  const trial = { runId: 'late', attempt: 1 };
  await openAttempt(gateway.db, { ...trial, trialId: 'late-straggler', groupId: 'late/0', trialIndex: 0 });
  await openAttempt(gateway.db, { ...trial, trialId: 'late-again', groupId: 'late/1', trialIndex: 0 });
  await sealAttempt(gateway.db, { trialId: 'late-again', outcome: 'infra_error' });
  await openAttempt(gateway.db, { ...trial, trialId: 'late-fresh', groupId: 'late/1', trialIndex: 1 });
  const path = '/runs/late/iterations/1/timeline';
  const line = await read(path);
  expect(line.waits_for).toMatch(
    /^The step waits for 2 groups \(1 of earlier iterations\): 1 trial under way, 1 trial between two attempts or out of attempts, 1 trial not opened\. Longest: late-fresh, \d+ s\.$/,
  );
  expect(line.all_trials).toMatchObject({ running: 3 });
  expect(line.groups[1].trials[0]).toMatchObject({ outcome: 'infra_error', has_outcome: false });
  const open = await read(`${path}?outcome=open`);
  expect(
    open.groups.flatMap(({ trials: own }: { trials: { trial_id: string }[] }) => own.map((each) => each.trial_id)),
  ).toEqual(['late-straggler', 'late-again', 'late-fresh']);
  expect((await read(`${path}?outcome=scored`)).all_trials).toMatchObject({ running: 3 });
  await gateway.db.update(groupRows).set({ endedAt: new Date() }).where(eq(groupRows.runId, 'late'));
  expect((await read(path)).waits_for).toMatch(
    /no group is open\. 2 trials of ended groups still run\. If the run is paused/,
  );
});

test('a group that no outside program has claimed waits for its claim, though its attempts are open', async () => {
  await openTakes('outside', 0, [{ task: '', agent: 'external' }]);
  await openAttempt(gateway.db, {
    runId: 'outside',
    trialId: 'outside-0',
    attempt: 1,
    groupId: 'outside/0',
    trialIndex: 0,
  });
  const path = '/runs/outside/iterations/0/timeline';
  expect(await read(path)).toMatchObject({
    waits_for: 'The step waits for a program to claim 1 group.',
    groups: [{ is_unclaimed: true, claimed_at: null }],
  });
  const claimedAt = new Date();
  await gateway.db.update(groupRows).set({ task: 't', claim: 'c', claimedAt }).where(eq(groupRows.runId, 'outside'));
  const line = await read(path);
  expect(line.waits_for).toMatch(/^The step waits for 1 group: 1 trial under way\. Longest: outside-0, \d+ s\.$/);
  expect(line.groups[0].is_unclaimed).toBe(false);
  expect(line.groups[0].claimed_at).toBeCloseTo(claimedAt.getTime() / 1000, 3);
});

test('a take that was superseded while it was open ends when the next one opens, and has no publication of later steps', async () => {
  await openTakes('hung', 0, [{}]);
  const at = (seconds: number): Date => new Date(1_700_000_000_000 + seconds * 1000);
  await gateway.db
    .update(iterations)
    .set({ status: 'superseded', openedAt: at(0) })
    .where(eq(iterations.runId, 'hung'));
  await gateway.db
    .insert(iterations)
    .values({ runId: 'hung', iteration: 0, take: 2, policyVersion: 0, openedAt: at(100) });
  await gateway.db
    .update(runs)
    .set({ resumedAt: at(150) })
    .where(eq(runs.id, 'hung'));
  const published = { runId: 'hung', weightVersion: 'w', checksum: 's', canaryDifference: 0, replica: 'http://one' };
  await gateway.db.insert(policyVersions).values(
    [0, 1].map((version) => ({
      runId: 'hung',
      version,
      stepKey: `hung ${version}`,
      checkpoint: '/c',
      checkpointSha256: 'c',
      canary: { token_ids: [], logprobs: [] },
    })),
  );
  await gateway.db.insert(publications).values([
    { ...published, version: 0, confirmedAt: at(50) },
    { ...published, version: 1, confirmedAt: at(200) },
  ]);
  expect(await read('/runs/hung/iterations/0/timeline?take=1')).toMatchObject({
    ended_at: 1_700_000_100,
    resumed_at: null,
    publications: [{ version: 0 }],
    waits_for: null,
  });
  expect(await read('/runs/hung/iterations/0/timeline')).toMatchObject({
    take: 2,
    ended_at: null,
    resumed_at: 1_700_000_150,
  });
});

test('a page of a timeline ends at about 2,000 trials, whatever its limit; only the first says what the step waits for', async () => {
  await openTakes(
    'wide',
    0,
    Array.from({ length: 4 }, () => ({ size: 900 })),
  );
  const path = '/runs/wide/iterations/0/timeline?limit=500';
  const first = await read(path);
  expect([first.groups.length, first.next_offset]).toEqual([3, 3]);
  expect(first.waits_for).toMatch(/^The step waits for 4 groups: 3600 trials not opened/);
  const last = await read(`${path}&offset=3`);
  expect(last).toMatchObject({
    groups: [{ group_id: 'wide/3' }],
    next_offset: null,
    waits_for: null,
    all_trials: null,
  });
});

test('a trial without an outcome is open while its run goes on, and cancelled when the run has ended', async () => {
  await gateway.db.insert(runs).values({ id: 'cut', config: {} });
  await gateway.db.insert(iterations).values({ runId: 'cut', iteration: 0, take: 1, policyVersion: 0 });
  const place = { runId: 'cut', groupId: 'cut/0.1/0' };
  await gateway.db.insert(groupRows).values({
    id: place.groupId,
    runId: 'cut',
    kind: 'train',
    iteration: 0,
    take: 1,
    ordinal: 0,
    task: 't',
    agent: 'a',
    size: 1,
    policyVersion: 0,
  });
  await openAttempt(gateway.db, { trialId: 'cut-trial', attempt: 1, ...place });
  expect(await read('/runs/cut/iterations')).toMatchObject({ iterations: [{ trials: { open: 1 } }] });
  await gateway.db.update(runs).set({ status: 'failed' }).where(eq(runs.id, 'cut'));
  expect(await read('/runs/cut/iterations')).toMatchObject({ iterations: [{ trials: { cancelled: 1 } }] });
});

test('an agent’s own key opens no route that reads runs; an unknown run or session gets 404', async () => {
  const trial = await gateway.trial({ runId: 'run', groupId: 'run/2.1/0' });
  const paths = [
    '/runs',
    '/runs/run',
    '/runs/run/iterations',
    '/runs/run/iterations/0/timeline',
    '/runs/run/groups',
    '/runs/run/dropped',
    `/sessions/${trial.id}/transcript`,
    `/sessions/${trial.id}/tokens`,
    `/sessions/${trial.id}/calls/${crypto.randomUUID()}/request`,
  ];
  for (const path of paths)
    for (const authorization of ['', `Bearer ${trial.key}`])
      expect([path, (await fetch(`${gateway.gateway.url}${path}`, { headers: { authorization } })).status]).toEqual([
        path,
        401,
      ]);
  for (const path of [
    '/runs/none',
    '/runs/none/groups',
    '/runs/%00',
    '/runs/none/iterations/0/timeline',
    '/runs/run/iterations/99/timeline',
    '/runs/run/iterations/0/timeline?take=9',
    '/sessions/none/transcript',
  ])
    expect([path, (await gateway.admin('GET', path)).status]).toEqual([path, 404]);
  for (const path of [
    '/runs?limit=0',
    '/runs/run/groups?dropped=other',
    '/runs/run/iterations?from=-1',
    '/runs/run/iterations/x/timeline',
  ])
    expect([path, (await gateway.admin('GET', path)).status]).toEqual([path, 400]);
});

test('a gateway without the built page says how to build it', async () => {
  await gateway.restart({ page: '/nowhere' });
  const reply = await fetch(`${gateway.gateway.url}/ui/`, { headers: { authorization: `Bearer ${ADMIN_KEY}` } });
  expect(reply.status).toBe(404);
  expect((await reply.json()).error).toMatchObject({
    code: 'page_not_built',
    message: expect.stringContaining('npm run page'),
  });
});
