import { and, eq } from 'drizzle-orm';
import { TrialgateError } from '../store/errors.ts';
import { trials } from '../store/schema.ts';
import type { Deps } from './deps.ts';
import { refusing } from './refusal.ts';

/** Which group a trial runs in. */
export const findOpenTrial = (deps: Deps) => (input: { runId: string; trialId: string }): Promise<{ groupId: string; member: number }> =>
  refusing(async () => {
    const { runId, trialId } = input;
    const [row] = await deps.db.select().from(trials).where(and(eq(trials.id, trialId), eq(trials.runId, runId)));
    if (row?.outcome) throw new TrialgateError('bad_input', `trial ${trialId} has ended: ${row.outcome}`);
    if (row?.groupId && row.member !== null) return { groupId: row.groupId, member: row.member };
    throw new TrialgateError('bad_input', `run ${runId} has no trial ${trialId}: "trialgate show ${runId}" lists them`);
  });
