import { expect, test } from 'vitest';
import { callRecord } from '../../tests/support/scenarios/call-record.ts';
import { recordCalls } from '../../store/queries/record-calls.ts';
import { openAttempt } from '../../store/queries/open-attempt.ts';
import { sealAttempt } from '../../store/queries/seal-attempt.ts';
import { groups, runs, type Outcome } from '../../store/schema.ts';
import { useDatabase } from '../../tests/support/harness/use-database.ts';
import { checkEvaluation } from './check-evaluation.ts';

const store = useDatabase();
let serial = 0;

/** Checks an evaluation of two groups of two trials; null is a trial that no host opened. The last trial has a completed call if it `hasReply`. */
async function check(
  outcomes: readonly (Outcome | null)[],
  { hasReply = true, version = 1, name = 'eval@1' } = {},
): Promise<void> {
  const runId = `run${++serial}`;
  await store.db.insert(runs).values({ id: runId, config: {} });
  const evaluated = [0, 1].map((ordinal) => ({ id: `${runId}/${name}/${ordinal}`, size: 2 }));
  for (const [ordinal, group] of evaluated.entries()) {
    await store.db
      .insert(groups)
      .values({ ...group, runId, kind: 'eval', ordinal, task: 't', agent: 'a', policyVersion: version });
  }
  for (const [i, outcome] of outcomes.entries()) {
    const trialId = `${runId}-eval.1-${i}`;
    if (outcome === null) continue;
    await openAttempt(store.db, { trialId, runId, groupId: evaluated[i >> 1]?.id, trialIndex: i & 1 });
    if (hasReply && i === outcomes.length - 1) await recordCalls(store.db, [callRecord({ trialId })]);
    await sealAttempt(store.db, { trialId, outcome, reason: `${outcome} of port ${i}` });
  }
  await checkEvaluation(store)({ groups: evaluated });
}

test.each<[string, (Outcome | null)[]]>([
  [
    "3 of the evaluation's 4 trials failed: infra_error of port 3",
    ['scored', 'infra_error', 'infra_error', 'infra_error'],
  ],
  ["3 of the evaluation's 4 trials failed: infra_error of port 0", ['infra_error', null, null, 'scored']],
  ["4 of the evaluation's 4 trials failed: no host opened a sandbox for them", [null, null, null, null]],
])('an evaluation fails when most of its trials failed: %s', async (message, outcomes) => {
  await expect(check(outcomes)).rejects.toMatchObject({ type: 'most_trials_failed', nonRetryable: true, message });
});

test.each<[string, (Outcome | null)[]]>([
  ['half of whose trials failed', ['scored', 'truncated', 'infra_error', null]],
  ['whose verifier gives no rewards', ['verifier_error', 'verifier_error', 'verifier_error', 'verifier_error']],
  ['that was cut at its deadline', ['cancelled', 'cancelled', 'cancelled', 'scored']],
])('an evaluation %s counts as done', async (_, outcomes) => {
  await check(outcomes);
});

const NO_REPLIES: Outcome[] = ['timed_out', 'timed_out', 'timed_out', 'agent_error'];

test('the evaluation before a run fails with the most frequent reason if no agent got a reply, and says how to go on without it', async () => {
  await expect(check(NO_REPLIES, { hasReply: false, version: 0 })).rejects.toMatchObject({
    type: 'no_reply',
    nonRetryable: true,
    message: expect.stringMatching(
      /^none of the evaluation's 4 trials got a reply of the model: timed_out of port \d\. .*configure run\d+ evaluation\.before=false.*resume/,
    ),
  });
});

test('an evaluation on demand in which no agent got a reply says to evaluate again, because no run waits for it', async () => {
  await expect(check(NO_REPLIES, { hasReply: false, version: 0, name: 'eval@0.2' })).rejects.toThrow(
    /got a reply of the model: timed_out of port \d\. Repair the cause and evaluate again$/,
  );
});

test('an evaluation whose agents all failed counts as done if one of them got a reply, and if the run has trained before', async () => {
  await check(NO_REPLIES, { version: 0 });
  await check(NO_REPLIES, { hasReply: false, version: 1 });
});
