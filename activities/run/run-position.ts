import { desc, eq } from 'drizzle-orm';
import type { Executor } from '../../store/queries/transaction.ts';
import { iterations } from '../../store/schema.ts';

/** Returns the last take of a run's last iteration; undefined before the first. */
export async function lastTake(db: Executor, runId: string): Promise<typeof iterations.$inferSelect | undefined> {
  const [last] = await db
    .select()
    .from(iterations)
    .where(eq(iterations.runId, runId))
    .orderBy(desc(iterations.iteration), desc(iterations.take))
    .limit(1);
  return last;
}

/** Returns a run's next iteration, and the policy version that it samples from, which is the run's last. */
export async function runPosition(db: Executor, runId: string): Promise<{ iteration: number; policyVersion: number }> {
  const last = await lastTake(db, runId);
  if (!last) return { iteration: 0, policyVersion: 0 };
  const { iteration, policyVersion, trainedVersion } = last;
  if (last.status === 'done' && trainedVersion !== null)
    return { iteration: iteration + 1, policyVersion: trainedVersion };
  return { iteration, policyVersion };
}
