import { and, asc, eq, max, sql } from 'drizzle-orm';
import type { Database } from '../database.ts';
import {
  attempts,
  batches,
  groups,
  iterations,
  longCalls,
  policyVersions,
  publications,
  trials,
  type Outcome,
} from '../schema.ts';
import { shownOutcome } from './shown-outcome.ts';
import { isSameTake, ofTake, type TakeKey } from './takes.ts';
import { hasChosen, isChosen, type TrialChoice } from './trial-choice.ts';
import { weightedRewardOf } from './weighted-reward.ts';

/** Times of a JSON value are in seconds since the epoch. */
export type TimelinePublication = { version: number; replicas: number; first: number; last: number };
/** What of a take has not ended. */
export type TakeProgress = {
  openGroups: number;
  /** Trials of open groups that no attempt was opened for. */
  unopened: number;
  underWay: number;
  verifying: number;
  /** The trial under way whose attempt was opened first. */
  oldest: { trialId: string; seconds: number } | null;
};
export type TimelineTake = typeof iterations.$inferSelect & {
  /** The newest take of the iteration. */
  newest: number;
  batchAt: Date | null;
  /** The version that its train step made, also before the take has ended. */
  version: number | null;
  trainedAt: Date | null;
  skipped: string | null;
  publications: TimelinePublication[];
  progress: TakeProgress;
  /** PostgreSQL's time. */
  now: number;
};

/** Returns one take of an iteration, the newest unless one is named, with the times that the record has of its step; null if there is none. */
export async function readTimelineTake(
  db: Database,
  { runId, iteration, take }: Omit<TakeKey, 'take'> & { take?: number },
): Promise<TimelineTake | null> {
  const newest = db
    .select({ take: max(iterations.take) })
    .from(iterations)
    .where(and(eq(iterations.runId, runId), eq(iterations.iteration, iteration)));
  const until = sql`coalesce(${iterations.endedAt}, now())`;
  const published = sql<TimelinePublication[]>`(
    select coalesce(json_agg(each order by each.first), '[]') from (
      select p.version, count(*)::int as replicas, extract(epoch from min(p.confirmed_at))::float8 as first,
        extract(epoch from max(p.confirmed_at))::float8 as last
      from ${publications} p
      where p.run_id = ${runId} and p.version >= ${iterations.policyVersion}
        and p.confirmed_at between ${iterations.openedAt} and ${until}
      group by p.version
    ) each)`;
  const progress = sql<TakeProgress>`(
    with own as (select * from ${groups} g where g.run_id = ${runId} and g.iteration = ${iterations.iteration} and g.take = ${iterations.take}),
    tried as (
      select t.id, t.status, t.outcome, own.ended_at as group_ended_at, a.opened_at, a.ended_at,
        extract(epoch from now() - a.opened_at)::float8 as seconds
      from own join ${trials} t on t.group_id = own.id join ${attempts} a on a.trial_id = t.id and a.attempt = t.attempt
    ),
    live as (select * from tried where outcome is null and ended_at is null)
    select json_build_object(
      'openGroups', (select count(*) from own where ended_at is null),
      'unopened', (select coalesce(sum(size), 0) from own where ended_at is null) - (select count(*) from tried where group_ended_at is null),
      'underWay', (select count(*) from live),
      'verifying', (select count(*) from live where status = 'completed'),
      'oldest', (select json_build_object('trialId', id, 'seconds', seconds) from live order by opened_at, id limit 1)))`;
  const [found] = await db
    .select({
      take: iterations,
      newest: sql<number>`(${newest})`,
      batchAt: batches.createdAt,
      version: policyVersions.version,
      trainedAt: policyVersions.createdAt,
      skipped: policyVersions.skipped,
      publications: published,
      progress,
      now: sql<number>`extract(epoch from now())::float8`,
    })
    .from(iterations)
    .leftJoin(batches, isSameTake(batches, iterations))
    .leftJoin(policyVersions, isSameTake(policyVersions, iterations))
    .where(
      and(
        eq(iterations.runId, runId),
        eq(iterations.iteration, iteration),
        take === undefined ? sql`${iterations.take} = (${newest})` : eq(iterations.take, take),
      ),
    );
  if (!found) return null;
  const { take: row, ...times } = found;
  return { ...row, ...times };
}

type AttemptRow = typeof attempts.$inferSelect;
export type TimelineAttempt = Pick<
  AttemptRow,
  'attempt' | 'outcome' | 'evidence' | 'host' | 'seconds' | 'openedAt' | 'endedAt'
> & { reason: string | null };
export type TimelineTrial = {
  id: string;
  trialIndex: number | null;
  agent: string | null;
  /** Null while it is under way, and when its run ended before any attempt of it did. */
  outcome: Outcome | null;
  reward: number | null;
  calls: number;
  tokens: number;
  /** The time from which its last attempt takes no more calls: its verification, or its end. */
  completedAt: Date | null;
  /** The start of its oldest call under way, if that has lasted for several seconds. */
  callSince: Date | null;
  attempts: TimelineAttempt[];
};
export type TimelineGroup = Pick<
  typeof groups.$inferSelect,
  'id' | 'task' | 'agent' | 'size' | 'dropped' | 'openedAt' | 'deadlineAt' | 'endedAt'
> & { trials: TimelineTrial[] };

/** The most characters of an attempt's reason. */
const REASON = 200;

type Wanted = {
  offset: number;
  limit: number;
  weights: Record<string, number>;
  hasEnded: boolean;
  trials: TrialChoice;
};

/** Returns a page of a take's groups that have wanted trials, in their order, with every attempt of these, in one statement. */
export async function readTimelineGroups(
  db: Database,
  key: TakeKey,
  { offset, limit, weights, hasEnded, trials: choice }: Wanted,
): Promise<TimelineGroup[]> {
  const chosen = isChosen(choice, { weights, hasEnded });
  const page = db.$with('page').as(
    db
      .select()
      .from(groups)
      .where(and(ofTake(groups, key), hasChosen(chosen)))
      .orderBy(asc(groups.ordinal), asc(groups.id))
      .offset(offset)
      .limit(limit),
  );
  const waits = db.$with('waits').as(
    db
      .select({
        trialId: longCalls.trialId,
        attempt: longCalls.attempt,
        since: sql<string>`min(${longCalls.startedAt})`.as('since'),
      })
      .from(longCalls)
      // A row of a gateway that is dead is not seen any more.
      .where(and(eq(longCalls.runId, key.runId), sql`${longCalls.seenAt} > now() - interval '30 seconds'`))
      .groupBy(longCalls.trialId, longCalls.attempt),
  );
  const rows = await db
    .with(page, waits)
    .select({
      group: {
        id: page.id,
        task: page.task,
        agent: page.agent,
        size: page.size,
        dropped: page.dropped,
        openedAt: page.openedAt,
        deadlineAt: page.deadlineAt,
        endedAt: page.endedAt,
      },
      trial: {
        id: trials.id,
        trialIndex: trials.trialIndex,
        agent: trials.agent,
        outcome: shownOutcome(),
        reward: weightedRewardOf(weights),
        calls: trials.usedCalls,
        tokens: trials.usedTokens,
        completedAt: trials.completedAt,
        callSince: sql<Date | null>`${waits.since}`.mapWith(longCalls.startedAt),
      },
      attempt: {
        attempt: attempts.attempt,
        outcome: attempts.outcome,
        reason: sql<string | null>`left(${attempts.reason}, ${sql.raw(String(REASON))})`,
        evidence: attempts.evidence,
        host: attempts.host,
        seconds: attempts.seconds,
        openedAt: attempts.openedAt,
        endedAt: attempts.endedAt,
      },
    })
    .from(page)
    .leftJoin(trials, and(eq(trials.groupId, page.id), chosen))
    .leftJoin(attempts, eq(attempts.trialId, trials.id))
    .leftJoin(waits, and(eq(waits.trialId, trials.id), eq(waits.attempt, attempts.attempt)))
    .orderBy(asc(page.ordinal), asc(page.id), asc(trials.trialIndex), asc(trials.id), asc(attempts.attempt));
  const found = new Map<string, TimelineGroup>();
  for (const { group, trial, attempt } of rows) {
    const own = found.get(group.id) ?? { ...group, trials: [] };
    found.set(group.id, own);
    if (!trial?.id) continue;
    const last = own.trials.at(-1);
    const shown = last?.id === trial.id ? last : { ...trial, attempts: [] };
    if (shown !== last) own.trials.push(shown);
    if (trial.callSince) shown.callSince = trial.callSince;
    if (attempt) shown.attempts.push(attempt);
  }
  return [...found.values()];
}
