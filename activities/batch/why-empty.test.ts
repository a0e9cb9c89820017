import { MockActivityEnvironment } from '@temporalio/testing';
import { eq } from 'drizzle-orm';
import { expect, test } from 'vitest';
import { calls } from '../../store/schema.ts';
import { begin, db, end, plan, runId, sample, usePlanning } from '../../tests/support/harness/planning.ts';
import { assembleBatch } from './assemble-batch.ts';

usePlanning();

test('a batch without a sample is refused with the outcomes of its trials and the most frequent reasons', async () => {
  await begin({});
  await plan(0);
  await sample(`${runId}/0.1/0`, 0);
  await db
    .update(calls)
    .set({ untrainable: 'no_token_ids' })
    .where(eq(calls.trialId, `${runId}/0.1/0-1`));
  await db.delete(calls).where(eq(calls.trialId, `${runId}/0.1/0-0`));
  await end(`${runId}/0.1/0`, 'timed_out', 'scored');
  await end(`${runId}/0.1/1`, 'agent_error', 'agent_error');
  const assemble = assembleBatch({ db, home: '/nowhere' });
  await expect(new MockActivityEnvironment().run(assemble, { runId, iteration: 0, take: 1 })).rejects.toMatchObject({
    type: 'empty_batch',
    message: expect.stringContaining(
      `iteration 0 has no trainable sample: its trials ended as 2 agent_error, 1 timed_out, 1 scored; most often: agent_error of port 1234; calls cannot be trained, most often: no_token_ids. "npx trialgate trials ${runId}" lists its trials. Repair the cause, then "npx trialgate redo ${runId}" samples anew, or "npx trialgate resume ${runId} --retry-failed" repeats failed trials`,
    ),
  });
});

const refused = { status: 'failed', httpStatus: 400, fault: 'request' } as const;

test.each([
  ['whose agents made no call says so', null, 'the agents made no call: they must ask the base URL'],
  [
    'none of whose calls got a reply says the most frequent reason',
    'engine_400: no',
    'no call got a reply, most often: engine_400: no. ',
  ],
])(
  'a batch of scored trials %s, and advises only `redo`, because a resume repeats none of them',
  async (_, reason, why) => {
    await begin({});
    await plan(0);
    for (const group of ['0', '1']) {
      await sample(`${runId}/0.1/${group}`, 0);
      await end(`${runId}/0.1/${group}`, 'scored', 'scored');
    }
    if (reason === null) await db.delete(calls);
    else await db.update(calls).set({ ...refused, reason, completionTokenIds: null });
    const assemble = assembleBatch({ db, home: '/nowhere' });
    const error = await new MockActivityEnvironment().run(assemble, { runId, iteration: 0, take: 1 }).catch(String);
    expect(error).toContain(`its trials ended as 4 scored; ${why}`);
    expect(error).toMatch(/Repair the cause, then "npx trialgate redo [^"]+" samples anew$/);
  },
);
