import { and, eq, gte, inArray, isNotNull, sql, type SQL } from 'drizzle-orm';
import { toolParserAdvice } from '../../core/restart-engine.ts';
import type { Database } from '../../store/database.ts';
import { readEngineWait } from '../../store/queries/read-engine-wait.ts';
import { readRefusals } from '../../store/queries/refusals.ts';
import { attempts, calls } from '../../store/schema.ts';
import type { AgentEndEvidence } from './judge-agent-end.ts';

type EndedAttempt = {
  trialId: string;
  attempt: number;
  /** The time at which the host last failed to connect the agent to the gateway, in milliseconds since the epoch. */
  gatewayFailedAt: number | null;
};

/** An agent that runs longer than this after a failed call did not end because of that call. */
const BEFORE_ITS_END_MS = 120_000;
/** A client that gives up earlier than this has not waited long. */
const LEAST_WAIT_SECONDS = 10;

/** Reads the gateway's records of an attempt that just ended. They are evidence of whose fault the end is. */
export async function readGatewayEvidence(
  db: Database,
  { trialId, attempt, gatewayFailedAt }: EndedAttempt,
): Promise<Pick<AgentEndEvidence, 'hasGatewayFailed' | 'unanswered' | 'earlier' | 'enginesAnswer'>> {
  const ofAttempt = and(eq(calls.trialId, trialId), eq(calls.attempt, attempt));
  const hasGatewayFailed =
    gatewayFailedAt !== null &&
    Date.now() - gatewayFailedAt < BEFORE_ITS_END_MS &&
    (await countAnswers(db, ofAttempt, gte(calls.endedAt, new Date(gatewayFailedAt)))) === 0;
  const answeredLater = sql`exists (select from calls later where later.trial_id = ${trialId} and later.attempt = ${attempt}
    and later.status = 'completed' and later.started_at >= ${calls.endedAt})`;
  const [failed] = await db
    .select({ fault: calls.fault, reason: calls.reason, engine: calls.engine })
    .from(calls)
    .where(
      and(
        ofAttempt,
        inArray(calls.fault, ['engine', 'gateway', 'store']),
        gte(calls.endedAt, new Date(Date.now() - BEFORE_ITS_END_MS)),
        sql`not ${answeredLater}`,
      ),
    )
    .orderBy(sql`${calls.seq} desc`)
    .limit(1);
  const refused = failed
    ? { ...failed, reason: withAdvice(failed) }
    : await refusedByStore(db, { trialId, attempt }, ofAttempt);
  const waited = refused ? null : await waitedInVain(db, { trialId, attempt });
  const { fault, reason } = refused ?? waited ?? {};
  const earlier = await countExcused(db, trialId);
  if (fault !== 'engine' && fault !== 'gateway' && fault !== 'store')
    return { hasGatewayFailed, unanswered: null, earlier, enginesAnswer: true };
  const enginesAnswer = await doEnginesAnswer(db, trialId);
  const unanswered = { fault, reason: reason ?? fault, ...(waited && { excusesOnlyCrash: true }) };
  return { hasGatewayFailed, unanswered, earlier, enginesAnswer };
}

/** Returns a call's reason with what a person can do, because a run that is blocked for it shows nothing else. */
function withAdvice(call: { reason: string | null; engine: string | null }): string | null {
  const advice = toolParserAdvice(call);
  return advice === null ? call.reason : `${call.reason}. ${advice}`;
}

/** Counts the attempts of a trial that such evidence has excused. */
export const countExcused = (db: Database, trialId: string): Promise<number> =>
  db.$count(
    attempts,
    and(eq(attempts.trialId, trialId), eq(attempts.outcome, 'infra_error'), isNotNull(attempts.evidence)),
  );

/** True when the engines have answered a call of the trial's run since its attempt began. */
export async function doEnginesAnswer(db: Database, trialId: string): Promise<boolean> {
  // Reads only trials of the run that are open or ended a moment ago, because an attempt can take hours and a run has many trials.
  const { rows } = await db.execute(sql`
    select from trials own join trials others on others.run_id = own.run_id join calls on calls.trial_id = others.id and calls.attempt = others.attempt
    where own.id = ${trialId} and coalesce(others.sealed_at, now()) >= own.attempt_opened_at and calls.status = 'completed' and calls.ended_at >= own.attempt_opened_at
    limit 1`);
  return rows.length > 0;
}

/**
 * Returns a fault of the engine if the agent's client gave up the attempt's last call a short time ago, after a long wait that other trials
 * had too. A wait of its own calls alone is no evidence, because an agent can make one. Nor does it excuse an agent that ended well, which
 * could run again that way when its work is bad.
 */
async function waitedInVain(
  db: Database,
  key: Pick<EndedAttempt, 'trialId' | 'attempt'>,
): Promise<{ fault: 'engine'; reason: string } | null> {
  const [last] = await db
    .select({ status: calls.status, startedAt: calls.startedAt, endedAt: calls.endedAt })
    .from(calls)
    .where(and(eq(calls.trialId, key.trialId), eq(calls.attempt, key.attempt)))
    .orderBy(sql`${calls.seq} desc`)
    .limit(1);
  if (last?.status !== 'cancelled' || Date.now() - last.endedAt.getTime() > BEFORE_ITS_END_MS) return null;
  const seconds = (last.endedAt.getTime() - last.startedAt.getTime()) / 1000;
  const wait = await readEngineWait(db, { ...key, since: last.startedAt });
  if (seconds < LEAST_WAIT_SECONDS || !wait.isShared || wait.seconds < seconds / 2) return null;
  return { fault: 'engine', reason: `it gave up a call after ${Math.round(seconds)} s` };
}

/**
 * Returns a fault of the store if the gateway refused a call of the attempt a short time ago because PostgreSQL was away, and answered none
 * after it. Such a call was never begun, so it is among the refusals.
 */
async function refusedByStore(
  db: Database,
  { trialId, attempt }: Pick<EndedAttempt, 'trialId' | 'attempt'>,
  ofAttempt: SQL | undefined,
): Promise<{ fault: 'store'; reason: string } | null> {
  const { latest = [] } = (await readRefusals(db, trialId)) ?? {};
  const refused = latest.find((each) => each.attempt === attempt && each.code === 'store_unavailable');
  if (!refused || Date.now() - Date.parse(refused.at) > BEFORE_ITS_END_MS) return null;
  const answered = await countAnswers(db, ofAttempt, gte(calls.startedAt, new Date(refused.at)));
  return answered > 0 ? null : { fault: 'store', reason: `${refused.code}: ${refused.message}` };
}

/** Counts the calls of an attempt that the agent got an answer to. */
const countAnswers = (db: Database, ofAttempt: SQL | undefined, since: SQL): Promise<number> =>
  db.$count(calls, and(ofAttempt, eq(calls.status, 'completed'), since));
