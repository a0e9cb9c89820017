import { and, asc, eq, or, sql } from 'drizzle-orm';
import { isCurrentAttempt } from '../../store/queries/current-attempt.ts';
import { isLive } from '../../store/queries/takes.ts';
import type { Database } from '../../store/database.ts';
import { attempts, groups, trials } from '../../store/schema.ts';
import { holderText, readEngineHolder, type EngineHolder } from '../run/engine-holder.ts';
import type { RunStatus } from '../run/query-status.ts';
import { table } from './table.ts';

export type UnderWay = {
  /** The phase that the query `status` reports, or null when the run's workflow does not answer. */
  phase: string | null;
  waits_for: string | null;
  until: string | null;
  /** The work of the trainer or the publisher. It is null when neither works for the run. */
  step: string | null;
  /** The blocked or paused run whose engines it waits for. */
  engine_holder: EngineHolder | null;
  groups: {
    id: string;
    task: string;
    trials: { waiting: number; running: number; ended: number };
    since: string;
    until: string | null;
  }[];
};

/** Returns a run's open groups, from the store, and what the run waits for, from its workflow's report. `ask` gets the reports of runs. */
export async function readUnderWay(
  db: Database,
  runId: string,
  ask: (runId: string) => Promise<RunStatus | null>,
): Promise<UnderWay> {
  const report = await ask(runId);
  const ended = sql<number>`count(${trials.outcome})::int`;
  const running = sql<number>`count(${attempts.trialId}) filter (where ${trials.outcome} is null and ${attempts.endedAt} is null)::int`;
  const rows = await db
    .select({ group: groups, ended, running })
    .from(groups)
    .leftJoin(trials, eq(trials.groupId, groups.id))
    .leftJoin(attempts, isCurrentAttempt)
    .where(and(eq(groups.runId, runId), or(eq(groups.kind, 'eval'), isLive(groups))))
    .groupBy(groups.id)
    // A step may wait for a straggler of a group that has ended.
    .having(sql`${groups.endedAt} is null or ${running} > 0`)
    .orderBy(asc(groups.iteration), asc(groups.ordinal));
  const { phase = null, waits_for = null, until = null, step = null } = report ?? {};
  return {
    phase,
    waits_for,
    until,
    step,
    engine_holder: await readEngineHolder(db, runId, ask),
    groups: rows.map(({ group, ...counts }) => ({
      id: group.id,
      task: group.task,
      trials: { waiting: group.size - counts.running - counts.ended, running: counts.running, ended: counts.ended },
      since: group.openedAt.toISOString(),
      until: group.deadlineAt?.toISOString() ?? null,
    })),
  };
}

/** Returns text that says what the run waits for, with a line for each group. */
export function printUnderWay(runId: string, under: UnderWay): string[] {
  const { phase, waits_for, until, step, engine_holder: holder, groups: open } = under;
  const limit = until === null ? '' : `, at the latest until ${until}`;
  // The phase of a run without engines says already that it waits for them.
  const waits = phase === 'waiting for engines' ? ' that no other run has' : `, waits for ${waits_for}`;
  const what = waits_for === null ? '' : `${waits}${limit}`;
  const rows = open.map((group) => [
    group.id.slice(runId.length + 1),
    group.task.split('/').at(-1) || 'not claimed',
    Object.entries(group.trials)
      .flatMap(([state, count]) => (count > 0 ? `${count} ${state}` : []))
      .join(', '),
    group.until ?? '–',
  ]);
  return [
    ...(phase === null ? [] : [`${phase}${what}${step === null ? '' : `: ${step}`}`]),
    ...(holder === null ? [] : [holderText(holder)]),
    ...(rows.length > 0 ? [table(['group', 'task', 'trials', 'until'], rows)] : []),
  ];
}
