import { and, asc, eq, lt, max, sql } from 'drizzle-orm';
import { UNCLAIMED_TASK } from '../../core/run-config/rollouts.ts';
import type { Database } from '../database.ts';
import {
  attempts,
  batches,
  groups,
  iterations,
  longCalls,
  policyVersions,
  publications,
  runs,
  trials,
  type Outcome,
} from '../schema.ts';
import { shownOutcome } from './shown-outcome.ts';
import { isSameTake, ofTake, type TakeKey } from './takes.ts';
import { hasChosen, isChosen, type TrialChoice } from './trial-choice.ts';
import { weightedRewardOf } from './weighted-reward.ts';

/** Times of a JSON value are in seconds since the epoch. */
export type TimelinePublication = { version: number; replicas: number; first: number; last: number };
/** What the groups that an open take may wait for still do. Those of earlier iterations that are young enough are among them. */
export type TakeProgress = {
  openGroups: number;
  ofEarlier: number;
  /** Open groups that no outside program has claimed yet. They and their trials are in no other number. */
  unclaimed: number;
  /** Trials that no attempt was opened for. */
  unopened: number;
  underWay: number;
  verifying: number;
  /** Trials whose attempt ended without an outcome of the trial. */
  betweenAttempts: number;
  /** Trials under way whose group has ended. */
  stragglers: number;
  /** The trial under way whose attempt was opened first. */
  oldest: { trialId: string; seconds: number } | null;
};
/** Of all trials of a take. */
export type TakeTrials = {
  /** Those that may still change: an attempt of it is open, or it has no outcome and its group is open. */
  running: number;
  /** The newest time that the record has of them, in seconds since the epoch. */
  lastAt: number | null;
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
  /** Null unless it was asked for and the take is open. */
  progress: TakeProgress | null;
  /** Null unless it was asked for. */
  trials: TakeTrials | null;
  /** PostgreSQL's time. */
  now: number;
};

type WantedTake = Omit<TakeKey, 'take'> & { take?: number; /** Also counts its trials. */ isCounted: boolean };

/**
 * Returns one take of an iteration, the newest unless one is named, with the times that the record has of its step; null if there is none. A
 * take that was superseded while it was open ends when the next one opens.
 */
export async function readTimelineTake(
  db: Database,
  { runId, iteration, take, isCounted }: WantedTake,
): Promise<TimelineTake | null> {
  const newest = db
    .select({ take: max(iterations.take) })
    .from(iterations)
    .where(and(eq(iterations.runId, runId), eq(iterations.iteration, iteration)));
  const endedAt = sql`coalesce(${iterations.endedAt}, (
    select min(later.opened_at) from ${iterations} later
    where later.run_id = ${runId} and later.iteration = ${iteration} and later.take > ${iterations.take}))`;
  const published = sql<TimelinePublication[]>`(
    select coalesce(json_agg(each order by each.first), '[]') from (
      select p.version, count(*)::int as replicas, extract(epoch from min(p.confirmed_at))::float8 as first,
        extract(epoch from max(p.confirmed_at))::float8 as last
      from ${publications} p
      where p.run_id = ${runId} and (p.version = ${policyVersions.version} or
        (p.version >= ${iterations.policyVersion} and p.confirmed_at between ${iterations.openedAt} and coalesce(${endedAt}, now())))
      group by p.version
    ) each)`;
  const tried = sql`
    select t.id, t.status, t.outcome, own.ended_at as group_ended_at, a.opened_at, a.ended_at
    from own join ${trials} t on t.group_id = own.id join ${attempts} a on a.trial_id = t.id and a.attempt = t.attempt`;
  const progress = sql<TakeProgress>`(
    with waited as (
      select g.* from ${groups} g join ${iterations} i on i.run_id = g.run_id and i.iteration = g.iteration and i.take = g.take
      where g.run_id = ${runId} and g.kind = 'train' and i.status <> 'superseded' and g.iteration between
        ${iteration} - (select coalesce((${runs.config} ->> 'max_staleness')::int, 0) from ${runs} where ${runs.id} = ${runId}) and ${iteration}
    ),
    own as (select * from waited where claim is not null or task <> ${UNCLAIMED_TASK}),
    groups_open as (select * from own where ended_at is null),
    tried as (${tried}),
    live as (select * from tried where outcome is null and ended_at is null and group_ended_at is null)
    select json_build_object(
      'openGroups', (select count(*) from groups_open),
      'ofEarlier', (select count(*) from groups_open where iteration < ${iteration}),
      'unclaimed', (select count(*) from waited where ended_at is null and claim is null and task = ${UNCLAIMED_TASK}),
      'unopened', (select coalesce(sum(size), 0) from groups_open) - (select count(*) from tried where group_ended_at is null),
      'underWay', (select count(*) from live),
      'verifying', (select count(*) from live where status = 'completed'),
      'betweenAttempts', (select count(*) from tried
        where outcome is null and ended_at is not null and group_ended_at is null and status <> 'deleted'),
      'stragglers', (select count(*) from tried where outcome is null and ended_at is null and group_ended_at is not null),
      'oldest', (select json_build_object('trialId', id, 'seconds', extract(epoch from now() - opened_at)::float8)
        from live order by opened_at, id limit 1)))`;
  const counted = sql<TakeTrials>`(
    with own as (select * from ${groups} g where g.run_id = ${runId} and g.iteration = ${iteration} and g.take = ${iterations.take}),
    tried as (${tried})
    select json_build_object(
      'running', (select count(*) from tried where outcome is null and (ended_at is null or group_ended_at is null)),
      'lastAt', extract(epoch from greatest(
        (select max(greatest(opened_at, ended_at)) from own),
        (select max(greatest(opened_at, ended_at)) from tried)))::float8))`;
  const [found] = await db
    .select({
      take: iterations,
      newest: sql<number>`(${newest})`,
      batchAt: batches.createdAt,
      version: policyVersions.version,
      trainedAt: policyVersions.createdAt,
      skipped: policyVersions.skipped,
      endedAt: sql<Date | null>`${endedAt}`.mapWith(iterations.endedAt),
      publications: published,
      progress: isCounted
        ? sql<TakeProgress | null>`case when ${iterations.status} = 'open' then ${progress} end`
        : sql<null>`null`,
      trials: isCounted ? counted : sql<null>`null`,
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
  /** False while it is under way or waits for its next attempt. */
  hasOutcome: boolean;
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
  'id' | 'task' | 'agent' | 'size' | 'dropped' | 'claim' | 'claimedAt' | 'openedAt' | 'deadlineAt' | 'endedAt'
> & { trials: TimelineTrial[] };

/** The most characters of an attempt's reason. */
const REASON = 200;
/** A page ends with the group that reaches this number of trials, because an answer is made on the thread that serves calls. */
const PAGE_TRIALS = 2_000;

type Wanted = {
  offset: number;
  limit: number;
  weights: Record<string, number>;
  hasEnded: boolean;
  trials: TrialChoice;
};

type Page = { groups: TimelineGroup[]; /** The offset of the next page. */ next: number | null };

/** Returns a page of a take's groups that have wanted trials, in their order, with every attempt of these, in one statement. */
export async function readTimelineGroups(
  db: Database,
  key: TakeKey,
  { offset, limit, weights, hasEnded, trials: choice }: Wanted,
): Promise<Page> {
  const chosen = isChosen(choice, { weights, hasEnded });
  const some = db.$with('some').as(
    db
      .select()
      .from(groups)
      .where(and(ofTake(groups, key), hasChosen(chosen)))
      .orderBy(asc(groups.ordinal), asc(groups.id))
      .offset(offset)
      .limit(limit + 1),
  );
  const page = db.$with('page').as(
    db
      .select({
        id: some.id,
        ordinal: some.ordinal,
        task: some.task,
        agent: some.agent,
        size: some.size,
        dropped: some.dropped,
        claim: some.claim,
        claimedAt: some.claimedAt,
        openedAt: some.openedAt,
        deadlineAt: some.deadlineAt,
        endedAt: some.endedAt,
        found: sql<number>`(count(*) over ())::int`.as('found'),
        before: sql<number>`sum(${some.size}) over (order by ${some.ordinal}, ${some.id}) - ${some.size}`.as('before'),
      })
      .from(some),
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
    .with(some, page, waits)
    .select({
      found: page.found,
      group: {
        id: page.id,
        task: page.task,
        agent: page.agent,
        size: page.size,
        dropped: page.dropped,
        claim: page.claim,
        claimedAt: page.claimedAt,
        openedAt: page.openedAt,
        deadlineAt: page.deadlineAt,
        endedAt: page.endedAt,
      },
      trial: {
        id: trials.id,
        trialIndex: trials.trialIndex,
        agent: trials.agent,
        outcome: shownOutcome(),
        hasOutcome: sql<boolean>`${trials.outcome} is not null`,
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
    .where(lt(page.before, PAGE_TRIALS))
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
  const shown = [...found.values()].slice(0, limit);
  return { groups: shown, next: (rows[0]?.found ?? 0) > shown.length ? offset + shown.length : null };
}
