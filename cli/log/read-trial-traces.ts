import { and, asc, eq, inArray, isNotNull, sql, type SQL } from 'drizzle-orm';
import { readRun } from '../../activities/run/read-run.ts';
import { agentName } from '../../activities/sandbox/agent-name.ts';
import { isInlineAgent } from '../../core/run-config/agent-file.ts';
import { choicesOf } from '../../store/calls/choices.ts';
import { restorer } from '../../store/calls/restore.ts';
import type { Database } from '../../store/database.ts';
import { calls, groups, trials } from '../../store/schema.ts';
import { groupsOf, type Pending } from './logger-entries.ts';
import { trialTrace, type TracedCall, type TrialTrace } from './trial-trace.ts';

/** The most calls of a trial that its trace has, and the most stored bytes of these. */
const MOST_CALLS = 100;
const MOST_BYTES = 64 * 2 ** 20;
const CALLS_AT_ONCE = 10;

/** Returns up to `most` ended trials of an entry: first one of each group, then a second one of each. */
export async function trialsToTrace(db: Database, runId: string, entry: Pending, most: number): Promise<string[]> {
  const rows = await db
    .select({ id: trials.id })
    .from(trials)
    .innerJoin(groups, eq(groups.id, trials.groupId))
    .where(and(eq(groups.runId, runId), groupsOf(runId, entry), isNotNull(trials.outcome)))
    .orderBy(asc(trials.trialIndex), asc(groups.ordinal), asc(trials.id))
    .limit(most);
  return rows.map(({ id }) => id);
}

/** Returns a function that names a run's agents by their labels. It reads each name once, and returns the label where the run's file cannot be read. */
export function agentNames(db: Database, runId: string): (label: string) => Promise<string> {
  const names = new Map<string, Promise<string>>();
  const read = async (label: string): Promise<string> => {
    const { agents } = isInlineAgent(label) ? await readRun(db, runId) : { agents: [] };
    return agentName(agents, label);
  };
  return (label) => {
    const name = names.get(label) ?? read(label).catch(() => label);
    names.set(label, name);
    return name;
  };
}

/** Makes the trace of a trial from the record. Returns null if it was deleted. */
export async function readTrialTrace(
  db: Database,
  trialId: string,
  nameOf: (label: string) => Promise<string>,
): Promise<TrialTrace | null> {
  const [row] = await db
    .select({ trial: trials, kind: groups.kind })
    .from(trials)
    .leftJoin(groups, eq(groups.id, trials.groupId))
    .where(eq(trials.id, trialId));
  if (!row) return null;
  const { trial, kind } = row;
  const agent = await nameOf(trial.agent ?? '–');
  return trialTrace({ ...trial, agent, kind: kind ?? 'session' }, tracedCalls(db, trial));
}

/** Yields the first calls of a trial's last attempt, read in small parts. */
async function* tracedCalls(
  db: Database,
  { id, attempt }: Pick<typeof trials.$inferSelect, 'id' | 'attempt'>,
): AsyncGenerator<TracedCall> {
  const ofAttempt = and(eq(calls.trialId, id), eq(calls.attempt, attempt));
  const seqs = await seqsToTrace(db, ofAttempt);
  const restore = restorer();
  for (let at = 0; at < seqs.length; at += CALLS_AT_ONCE) {
    const rows = await db
      .select({
        id: calls.id,
        baseId: calls.baseId,
        request: calls.request,
        response: calls.response,
        status: calls.status,
        reason: calls.reason,
        httpStatus: calls.httpStatus,
        finishReason: calls.finishReason,
        policyVersion: calls.policyVersion,
        continuation: calls.continuation,
        untrainable: calls.untrainable,
        startedAt: calls.startedAt,
        firstTokenAt: calls.firstTokenAt,
        endedAt: calls.endedAt,
        promptTokens: sql<
          number | null
        >`case when ${calls.choiceOf} is null then ${calls.sharedIds} + octet_length(${calls.promptTokenIds}) / 4 end`,
        completionTokens: sql<number | null>`octet_length(${calls.completionTokenIds}) / 4`,
      })
      .from(calls)
      .where(and(ofAttempt, inArray(calls.seq, seqs.slice(at, at + CALLS_AT_ONCE))))
      .orderBy(asc(calls.seq));
    for (const row of rows) {
      const { request, response } = restore(row);
      yield { ...row, request, choices: choicesOf(response) };
    }
  }
}

/** Returns the first calls that have room. PostgreSQL knows the length of a value without loading it. */
async function seqsToTrace(db: Database, ofAttempt: SQL | undefined): Promise<number[]> {
  const rows = await db
    .select({
      seq: calls.seq,
      bytes: sql<number>`octet_length(${calls.request}) + coalesce(octet_length(${calls.response}), 0)`,
    })
    .from(calls)
    .where(ofAttempt)
    .orderBy(asc(calls.seq))
    .limit(MOST_CALLS);
  let room = MOST_BYTES;
  const end = rows.findIndex(({ bytes }) => (room -= bytes) < 0);
  return rows.slice(0, end === -1 ? rows.length : end).map(({ seq }) => seq);
}
