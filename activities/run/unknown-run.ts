import { ne } from 'drizzle-orm';
import { TrialgateError } from '../../core/errors.ts';
import { nearest } from '../../core/nearest.ts';
import type { Executor } from '../../store/queries/transaction.ts';
import { runs } from '../../store/schema.ts';

/** Returns the error for the name of a run that is not there. It names the run that was probably meant. */
export const unknownRun = async (db: Executor, runId: string): Promise<TrialgateError> =>
  new TrialgateError(
    'not_found',
    `there is no run ${runId}${await meantRun(db, runId)}: "npx trialgate show" lists all runs`,
  );

/** Returns ` (did you mean first?)`, or nothing if no other run has a name like this. */
export async function meantRun(db: Executor, runId: string): Promise<string> {
  const known = await db.select({ id: runs.id }).from(runs).where(ne(runs.id, runId));
  const like = nearest(
    runId,
    known.map(({ id }) => id),
  );
  return like === null ? '' : ` (did you mean ${like}?)`;
}
