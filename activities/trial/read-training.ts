import { eq } from 'drizzle-orm';
import type { Database } from '../../store/database.ts';
import { groups, trials } from '../../store/schema.ts';
import { UNTRAINED } from '../reward/grade-row.ts';
import type { GradeRequest } from '../reward/grader.ts';
import { readRun } from '../run/read-run.ts';

/** Returns how far the training was when a trial began, as TRL's `trainer_state` says it. Outside any run nothing was trained. */
export async function readTraining(db: Database, trialId: string): Promise<GradeRequest['training']> {
  const [group] = await db
    .select({ runId: groups.runId, iteration: groups.iteration, policyVersion: groups.policyVersion })
    .from(trials)
    .innerJoin(groups, eq(groups.id, trials.groupId))
    .where(eq(trials.id, trialId));
  if (!group) return UNTRAINED;
  const { iterations } = await readRun(db, group.runId);
  return { global_step: group.iteration ?? group.policyVersion, max_steps: iterations };
}
