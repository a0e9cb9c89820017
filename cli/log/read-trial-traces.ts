import { and, asc, eq, gt, isNotNull, sql } from 'drizzle-orm';
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

/** Makes the trace of a trial from the record. Returns null if it was deleted. */
export async function readTrialTrace(db: Database, trialId: string): Promise<TrialTrace | null> {
  const [row] = await db
    .select({ trial: trials, kind: groups.kind })
    .from(trials)
    .leftJoin(groups, eq(groups.id, trials.groupId))
    .where(eq(trials.id, trialId));
  if (!row) return null;
  const { trial, kind } = row;
  const label = trial.agent ?? '–';
  const { agents } = trial.runId !== null && isInlineAgent(label) ? await readRun(db, trial.runId) : { agents: [] };
  return trialTrace(
    { ...trial, agent: await agentName(agents, label), kind: kind ?? 'session' },
    tracedCalls(db, trial),
  );
}

/** Yields the first calls of a trial's last attempt, read in small parts. */
async function* tracedCalls(
  db: Database,
  { id, attempt }: Pick<typeof trials.$inferSelect, 'id' | 'attempt'>,
): AsyncGenerator<TracedCall> {
  const restore = restorer();
  let bytes = 0;
  let last = 0;
  for (let count = 0; count < MOST_CALLS; count += CALLS_AT_ONCE) {
    const rows = await db
      .select({
        id: calls.id,
        seq: calls.seq,
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
      .where(and(eq(calls.trialId, id), eq(calls.attempt, attempt), gt(calls.seq, last)))
      .orderBy(asc(calls.seq))
      .limit(CALLS_AT_ONCE);
    for (const row of rows) {
      bytes += row.request.byteLength + (row.response?.byteLength ?? 0);
      if (bytes > MOST_BYTES) return;
      const { request, response } = restore(row);
      yield { ...row, request, choices: choicesOf(response) };
      last = row.seq;
    }
    if (rows.length < CALLS_AT_ONCE) return;
  }
}
