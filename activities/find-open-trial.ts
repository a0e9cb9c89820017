import { ApplicationFailure } from '@temporalio/common';
import { and, eq } from 'drizzle-orm';
import { trials } from '../store/schema.ts';
import type { Deps } from './deps.ts';

/** Which group a trial runs in. */
export const findOpenTrial = (deps: Deps) => async (input: { runId: string; trialId: string }): Promise<{ groupId: string; member: number }> => {
  const { runId, trialId } = input;
  const [row] = await deps.db.select().from(trials).where(and(eq(trials.id, trialId), eq(trials.runId, runId)));
  if (row?.outcome) throw refusal(`trial ${trialId} has ended: ${row.outcome}`);
  if (!row?.groupId || row.member === null) throw refusal(`run ${runId} has no trial ${trialId}: "trialgate show ${runId}" lists them`);
  return { groupId: row.groupId, member: row.member };
};

const refusal = (message: string) => ApplicationFailure.create({ type: 'bad_input', message, nonRetryable: true });
