import { and, asc, eq, gte, or, sql, type SQL } from 'drizzle-orm';
import type { Database } from '../../store/database.ts';
import { attempts, batches, groups, iterations, runs, trials } from '../../store/schema.ts';
import type { RunLog } from './logger-entries.ts';

/** What is sent at once: a group with its trials and calls, a take of an iteration, an evaluation, or the run itself. */
export type Part = { at: number } & (
  | { kind: 'group'; group: typeof groups.$inferSelect; attempts: number }
  | { kind: 'take'; take: typeof iterations.$inferSelect }
  | { kind: 'evaluation'; evaluation: string; version: number; start: number }
  | { kind: 'run' }
) & {
    /** The end of the run that cut it. A run that goes on sends the whole part again, with the same ids. */
    cut: Date | null;
  };

/** A group whose deadline has passed for so long runs no more, whatever its trials say. */
const GRACE_MS = 24 * 3600_000;
/** Groups are written by other connections: one that began before may be seen later by so much. */
const LATE_MS = 600_000;
/** The groups of an evaluation open one after another within moments. */
const EVALUATION_GRACE_MS = 20_000;

/** A step's take is behind the groups that it used, and the run behind all. */
const RANK: Record<Part['kind'], number> = { group: 0, evaluation: 1, take: 2, run: 3 };

type Take = typeof iterations.$inferSelect;
type GroupRow = { group: typeof groups.$inferSelect; attempts: number; isSettled: boolean; lastDeadline: Date | null };

export const partName = (runId: string, part: Part): string => {
  const until = part.cut === null ? '' : ` until ${part.cut.toISOString()}`;
  // A group that a resume opened again has more attempts, and is sent again.
  if (part.kind === 'group')
    return `group ${part.group.id.slice(runId.length + 1)} after ${part.attempts} attempts${until}`;
  if (part.kind === 'take') return `iteration ${part.take.iteration}.${part.take.take}${until}`;
  return `${part.kind === 'evaluation' ? part.evaluation : 'run'}${until}`;
};

/** Returns what names the trace of a group: the take of its iteration, or its evaluation. */
export const traceOf = ({ id, runId }: Pick<typeof groups.$inferSelect, 'id' | 'runId'>): string =>
  id.slice(runId.length + 1).replace(/\/[^/]*$/, '');

/** Finds the parts of a run that are over. */
export class SpanParts {
  readonly #db: Database;
  readonly #runId: string;
  /** Groups that opened before are sent, except those of the last reading that are not. */
  #since = new Date(0);
  /** The groups of the last reading, with the parts that need them. */
  #read: { id: string; parts: string[] }[] = [];
  /** A resume may open groups again. */
  #resumedAt: number | null = null;

  constructor(db: Database, runId: string) {
    this.#db = db;
    this.#runId = runId;
  }

  /** Returns the parts that are over and not sent, in the order of their ends. */
  async due({ status, endedAt }: RunLog, sent: ReadonlySet<string>): Promise<Part[]> {
    const [rows, takes] = await Promise.all([this.#readGroups(sent), this.#readTakes()]);
    const parts = [
      ...rows.flatMap((row) => groupPart(row, status, endedAt) ?? []),
      ...takes.flatMap((take, index) => takePart(take, takes.slice(index + 1), endedAt) ?? []),
      ...evaluationParts(rows, status, endedAt),
      ...(endedAt === null ? [] : [{ kind: 'run', at: endedAt.getTime(), cut: endedAt } satisfies Part]),
    ];
    const isSent = (part: Part): boolean => sent.has(partName(this.#runId, part));
    const missing = parts.filter((part) => !isSent(part));
    return missing.toSorted((a, b) => a.at - b.at || RANK[a.kind] - RANK[b.kind]);
  }

  #readTakes(): Promise<Take[]> {
    return this.#db
      .select()
      .from(iterations)
      .where(eq(iterations.runId, this.#runId))
      .orderBy(asc(iterations.iteration), asc(iterations.take));
  }

  /** Reads the groups that are new or not sent. A group of an evaluation is needed until that is sent too. */
  async #readGroups(sent: ReadonlySet<string>): Promise<GroupRow[]> {
    const [run] = await this.#db.select({ resumedAt: runs.resumedAt }).from(runs).where(eq(runs.id, this.#runId));
    const resumedAt = run?.resumedAt?.getTime() ?? null;
    if (resumedAt !== this.#resumedAt) [this.#resumedAt, this.#since, this.#read] = [resumedAt, new Date(0), []];
    const unsent = this.#read.filter(({ parts }) => !parts.every((part) => sent.has(part))).map(({ id }) => id);
    const ofGroup = (condition: SQL) =>
      sql`(select count(*) from ${trials} as trial where trial.group_id = groups.id and ${condition})`;
    const withOutcome = ofGroup(sql`trial.outcome is not null`);
    // After infrastructure errors alone a trial has no outcome, and one that no host opened has no row.
    const running = ofGroup(sql`trial.outcome is null and not exists (
      select 1 from ${attempts} as last where last.trial_id = trial.id and last.attempt = trial.attempt and last.ended_at is not null)`);
    const isDecided = sql`(groups.dropped is not null
      or exists (select 1 from ${batches} as batch where batch.run_id = groups.run_id and batch.iteration = groups.batch_iteration and batch.take = groups.batch_take)
      or exists (select 1 from ${iterations} as own where own.run_id = groups.run_id and own.iteration = groups.iteration and own.take = groups.take and own.status = 'superseded'))`;
    const rows = await this.#db
      .select({
        group: groups,
        attempts: sql<number>`(select coalesce(sum(trial.attempt), 0)::integer from ${trials} as trial where trial.group_id = groups.id)`,
        isSettled: sql<boolean>`groups.ended_at is not null and case when groups.kind = 'eval' then ${withOutcome} >= groups.size else ${isDecided} and ${running} = 0 end`,
        lastDeadline: sql<Date | null>`greatest(groups.deadline_at, ${runs.resumedAt})`.mapWith(groups.deadlineAt),
      })
      .from(groups)
      .innerJoin(runs, eq(runs.id, groups.runId))
      .where(
        and(
          eq(groups.runId, this.#runId),
          or(gte(groups.openedAt, this.#since), sql`groups.id = any(${sql.param(unsent)}::text[])`),
        ),
      )
      .orderBy(asc(groups.openedAt), asc(groups.id));
    this.#read = rows.map(({ group, attempts: count }) => {
      const part = partName(this.#runId, { kind: 'group', group, attempts: count, at: 0, cut: null });
      return { id: group.id, parts: group.kind === 'eval' ? [part, traceOf(group)] : [part] };
    });
    const newest = rows.findLast(({ group }) => Number.isFinite(group.openedAt.getTime()));
    if (newest) this.#since = new Date(Math.max(this.#since.getTime(), newest.group.openedAt.getTime() - LATE_MS));
    return rows;
  }
}

/** A deadline alone ends a group only long after: it may wait, or be opened again after a block. */
const isLate = ({ lastDeadline }: GroupRow, status: RunLog['status']): boolean =>
  status !== 'blocked' && lastDeadline !== null && Date.now() - lastDeadline.getTime() > GRACE_MS;

/** A group is over when its trials are, and it is decided if a batch has it. */
function groupPart(row: GroupRow, status: RunLog['status'], endedAt: Date | null): Part | null {
  const { group, attempts: count, isSettled } = row;
  if (isSettled || isLate(row, status))
    return { kind: 'group', group, attempts: count, at: (group.endedAt ?? group.openedAt).getTime(), cut: null };
  return endedAt && { kind: 'group', group, attempts: count, at: endedAt.getTime(), cut: endedAt };
}

function takePart(take: Take, later: Take[], runEnd: Date | null): Part | null {
  if (take.status === 'open') return runEnd && { kind: 'take', take, at: runEnd.getTime(), cut: runEnd };
  // A take that was superseded while it was open ended when the next one opened.
  const next = later.find(({ iteration }) => iteration === take.iteration);
  const endedAt = take.endedAt ?? next?.openedAt ?? runEnd;
  return endedAt && { kind: 'take', take: { ...take, endedAt }, at: endedAt.getTime(), cut: null };
}

function evaluationParts(rows: GroupRow[], status: RunLog['status'], endedAt: Date | null): Part[] {
  const evaluated = Map.groupBy(
    rows.filter(({ group }) => group.kind === 'eval'),
    ({ group }) => traceOf(group),
  );
  return [...evaluated].flatMap(([evaluation, of]): Part[] => {
    const [first] = of;
    if (!first) return [];
    const ends = of.map((row) =>
      row.isSettled || isLate(row, status) ? (row.group.endedAt ?? row.group.openedAt).getTime() : null,
    );
    const last = ends.includes(null) ? null : Math.max(...ends.map((end) => end ?? 0));
    const isOver = last !== null && (endedAt !== null || last < Date.now() - EVALUATION_GRACE_MS);
    const cut = isOver ? null : endedAt;
    const at = isOver ? last : endedAt?.getTime();
    if (at === undefined || at === null) return [];
    return [
      {
        kind: 'evaluation',
        evaluation,
        version: first.group.policyVersion,
        start: first.group.openedAt.getTime(),
        at,
        cut,
      },
    ];
  });
}
