import { ApplicationFailure } from '@temporalio/common';
import { and, count, eq, isNull, ne } from 'drizzle-orm';
import { sleep } from '../../core/sleep.ts';
import type { Database } from '../../store/database.ts';
import { isCurrentAttempt } from '../../store/queries/current-attempt.ts';
import { openAttempt, type OpenAttempt } from '../../store/queries/open-attempt.ts';
import type { Transaction } from '../../store/queries/transaction.ts';
import { attempts, groups, runs, trials } from '../../store/schema.ts';

const POLL_MS = 1_000;
/** The longest wait of one try of the opening, which keeps a slot of its host. */
const MOST_POLLS = 10;

/**
 * Opens an attempt of a run's trial when fewer than `atOnce` other trials of the run are under way; null is no bound. `onWait` is called when it
 * begins to wait for one of them to end.
 * @throws ApplicationFailure when there are still as many, so that Temporal tries the opening again later. Its slot is free for other runs meanwhile.
 */
export async function openInTurn(
  db: Database,
  input: OpenAttempt & { runId: string },
  { atOnce, signal, onWait }: { atOnce: number | null; signal: AbortSignal; onWait: () => void },
): Promise<void> {
  for (let polls = 0; !(await openIfRoom(db, input, atOnce)); polls++) {
    if (polls === 0) onWait();
    if (polls === MOST_POLLS)
      throw ApplicationFailure.create({ type: 'trials_at_once', message: `${atOnce} trials of the run are under way` });
    await sleep(POLL_MS, signal);
  }
}

async function openIfRoom(
  db: Database,
  input: OpenAttempt & { runId: string },
  atOnce: number | null,
): Promise<boolean> {
  if (atOnce === null) {
    await openAttempt(db, input);
    return true;
  }
  return db.transaction(async (tx) => {
    // Openings of a run follow each other, so that no two of them take the same place.
    await tx.select({ id: runs.id }).from(runs).where(eq(runs.id, input.runId)).for('no key update');
    if ((await othersUnderWay(tx, input)) >= atOnce) return false;
    await openAttempt(tx, input);
    return true;
  });
}

/** Trials of groups that have ended do not count: what a killed worker left open there would never end. */
async function othersUnderWay(tx: Transaction, { runId, trialId }: OpenAttempt & { runId: string }): Promise<number> {
  const [row] = await tx
    .select({ trials: count() })
    .from(trials)
    .innerJoin(groups, and(eq(groups.id, trials.groupId), isNull(groups.endedAt)))
    .innerJoin(attempts, and(isCurrentAttempt, isNull(attempts.endedAt)))
    .where(and(eq(trials.runId, runId), ne(trials.id, trialId), isNull(trials.outcome)));
  return row?.trials ?? 0;
}
