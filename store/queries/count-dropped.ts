import { and, count, desc, eq, gte, isNotNull, ne, or, sql } from 'drizzle-orm';
import type { Database } from '../database.ts';
import { attempts, calls, groups, iterations, trials, type DropReason, type Outcome } from '../schema.ts';
import { isLive } from './takes.ts';

/** The number of iterations whose calls are counted. A run's calls have no index of their own, and it may have millions. */
const NEWEST = 10;
/** The most trials that are named for one reason. */
const MOST_EXAMPLES = 20;

export type DroppedCalls = { reason: string; calls: number; trials: string[] };
export type Dropped = {
  groups: { reason: DropReason; groups: number }[];
  /** Trials that ended without being scored. */
  trials: { outcome: Outcome; trials: number; examples: string[] }[];
  /** Attempts that were run again. */
  attempts: { reason: string; evidence: string | null; attempts: number; trials: string[] }[];
  /** Calls of the iterations from `callsSince` on that are not trained. */
  calls: DroppedCalls[];
  callsSince: number;
};

/** Counts what of a run is not trained, by reason. Evaluations are never trained, and nothing of a superseded take counts. */
export async function countDropped(db: Database, runId: string): Promise<Dropped> {
  const ofRun = and(eq(groups.runId, runId), eq(groups.kind, 'train'), isLive(groups));
  const examples = sql<string[]>`(array_agg(distinct ${trials.id}))[1:${sql.raw(String(MOST_EXAMPLES))}]`;
  const droppedGroups = await db
    .select({ reason: groups.dropped, groups: count() })
    .from(groups)
    .where(and(ofRun, isNotNull(groups.dropped)))
    .groupBy(groups.dropped)
    .orderBy(desc(count()));
  const lost = await db
    .select({ outcome: trials.outcome, trials: count(), examples })
    .from(trials)
    .innerJoin(groups, eq(groups.id, trials.groupId))
    .where(and(ofRun, isNotNull(trials.outcome), ne(trials.outcome, 'scored')))
    .groupBy(trials.outcome)
    .orderBy(desc(count()));
  const reason = sql<string>`coalesce(left(${attempts.reason}, 200), ${attempts.outcome})`;
  const again = await db
    .select({ reason, evidence: attempts.evidence, attempts: count(), trials: examples })
    .from(attempts)
    .innerJoin(trials, eq(trials.id, attempts.trialId))
    .innerJoin(groups, eq(groups.id, trials.groupId))
    .where(and(ofRun, eq(attempts.outcome, 'infra_error')))
    .groupBy(sql`1`, attempts.evidence)
    .orderBy(desc(count()))
    .limit(100);
  const [{ last } = { last: null }] = await db
    .select({ last: sql<number | null>`max(${iterations.iteration})` })
    .from(iterations)
    .where(eq(iterations.runId, runId));
  const callsSince = Math.max(0, (last ?? 0) - NEWEST + 1);
  const why = sql<string>`case when ${calls.status} = 'completed' then ${calls.untrainable} else ${calls.status} || ': ' || coalesce(left(${calls.reason}, 200), 'no reason') end`;
  const dropped = await db
    .select({ reason: why, calls: count(), trials: examples })
    .from(groups)
    .innerJoin(trials, eq(trials.groupId, groups.id))
    .innerJoin(calls, and(eq(calls.trialId, trials.id), eq(calls.attempt, trials.attempt)))
    .where(
      and(ofRun, gte(groups.iteration, callsSince), or(ne(calls.status, 'completed'), isNotNull(calls.untrainable))),
    )
    .groupBy(sql`1`)
    .orderBy(desc(count()))
    .limit(100);
  return {
    groups: droppedGroups.flatMap((row) => (row.reason ? [{ reason: row.reason, groups: row.groups }] : [])),
    trials: lost.flatMap((row) =>
      row.outcome ? [{ outcome: row.outcome, trials: row.trials, examples: row.examples }] : [],
    ),
    attempts: again,
    calls: dropped,
    callsSince,
  };
}
