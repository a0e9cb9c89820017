import { and, asc, eq, gte, inArray, sql, type SQL } from 'drizzle-orm';
import type { Outcome } from '../../core/outcomes.ts';
import type { Database } from '../../store/database.ts';
import { batches, groups, iterations, runs, trials } from '../../store/schema.ts';
import type { RunLog } from './logger-entries.ts';

/** What is sent at once: a group with its trials and calls, a take of an iteration, an evaluation, or the run itself. */
export type Part = { at: number } & (
  | { kind: 'group'; group: typeof groups.$inferSelect }
  | { kind: 'take'; take: typeof iterations.$inferSelect }
  | { kind: 'evaluation'; evaluation: string; version: number; start: number }
  | { kind: 'run' }
) & {
    /** The end of the run that cut it. A run that goes on sends the whole part again, with the same ids. */
    cut: Date | null;
  };

/** The outcomes of trials that a resume may open again, until their batch is written. */
const MAY_REOPEN: Outcome[] = ['timed_out', 'agent_error', 'verifier_error', 'infra_error'];
/** A group whose deadline has passed for so long runs no more, whatever its trials say. */
const GRACE_MS = 24 * 3600_000;
/** Groups are written by other connections: one that began before may be seen later by so much. */
const LATE_MS = 600_000;
/** The groups of an evaluation open one after another within moments. */
const EVALUATION_GRACE_MS = 20_000;

/** A step's take is behind the groups that it used, and the run behind all. */
const RANK: Record<Part['kind'], number> = { group: 0, evaluation: 1, take: 2, run: 3 };

type Take = typeof iterations.$inferSelect;
type GroupRow = { group: typeof groups.$inferSelect; isSettled: boolean; lastDeadline: Date | null };

export const partName = (runId: string, part: Part): string => {
  const until = part.cut === null ? '' : ` until ${part.cut.toISOString()}`;
  if (part.kind === 'group') return `group ${part.group.id.slice(runId.length + 1)}${until}`;
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
  /** Groups that opened before are all sent. */
  #since = new Date(0);

  constructor(db: Database, runId: string) {
    this.#db = db;
    this.#runId = runId;
  }

  /** Returns the parts that are over and not sent, in the order of their ends. */
  async due({ status, endedAt }: RunLog, sent: ReadonlySet<string>): Promise<Part[]> {
    const [rows, takes] = await Promise.all([this.#readGroups(), this.#readTakes()]);
    const parts = [
      ...rows.flatMap((row) => groupPart(row, status, endedAt) ?? []),
      ...takes.flatMap((take, index) => takePart(take, takes.slice(index + 1), endedAt) ?? []),
      ...evaluationParts(rows, endedAt),
      ...(endedAt === null ? [] : [{ kind: 'run', at: endedAt.getTime(), cut: endedAt } satisfies Part]),
    ];
    const isSent = (part: Part): boolean => sent.has(partName(this.#runId, part));
    this.#moveOn(rows, parts.filter(isSent));
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

  async #readGroups(): Promise<GroupRow[]> {
    const count = (condition: SQL) =>
      sql`(select count(*) from ${trials} as trial where trial.group_id = groups.id and ${condition})`;
    const ended = count(sql`trial.outcome is not null`);
    const mayReopen = count(inArray(sql`trial.outcome`, MAY_REOPEN));
    const isFixed = sql`(exists (select 1 from ${batches} as batch where batch.run_id = groups.run_id and batch.iteration = groups.batch_iteration and batch.take = groups.batch_take)
      or exists (select 1 from ${iterations} as own where own.run_id = groups.run_id and own.iteration = groups.iteration and own.take = groups.take and own.status <> 'open'))`;
    return this.#db
      .select({
        group: groups,
        isSettled: sql<boolean>`groups.ended_at is not null and ${ended} >= groups.size and (groups.kind = 'eval' or ${isFixed} or ${mayReopen} = 0)`,
        lastDeadline: sql<Date | null>`greatest(groups.deadline_at, ${runs.resumedAt})`.mapWith(groups.deadlineAt),
      })
      .from(groups)
      .innerJoin(runs, eq(runs.id, groups.runId))
      .where(and(eq(groups.runId, this.#runId), gte(groups.openedAt, this.#since)))
      .orderBy(asc(groups.openedAt), asc(groups.id));
  }

  /** Leaves out, from now on, the groups before the first one that is not sent. A group of an evaluation is needed until that is sent too. */
  #moveOn(rows: GroupRow[], done: Part[]): void {
    const sentGroups = new Set(
      done.flatMap((part) => (part.kind === 'group' && part.cut === null ? [part.group.id] : [])),
    );
    const sentEvaluations = new Set(
      done.flatMap((part) => (part.kind === 'evaluation' && part.cut === null ? [part.evaluation] : [])),
    );
    const isSent = ({ group }: GroupRow): boolean =>
      sentGroups.has(group.id) && (group.kind === 'train' || sentEvaluations.has(traceOf(group)));
    const first = rows.find((row) => !isSent(row)) ?? rows.at(-1);
    if (first) this.#since = new Date(first.group.openedAt.getTime() - LATE_MS);
  }
}

/** A group is over when all of its trials are and stay so. A deadline alone ends it only long after: it may wait, or be opened again after a block. */
function groupPart(
  { group, isSettled, lastDeadline }: GroupRow,
  status: RunLog['status'],
  endedAt: Date | null,
): Part | null {
  const isLate = status !== 'blocked' && lastDeadline !== null && Date.now() - lastDeadline.getTime() > GRACE_MS;
  if (isSettled || isLate) return { kind: 'group', group, at: (group.endedAt ?? group.openedAt).getTime(), cut: null };
  return endedAt && { kind: 'group', group, at: endedAt.getTime(), cut: endedAt };
}

function takePart(take: Take, later: Take[], runEnd: Date | null): Part | null {
  if (take.status === 'open') return runEnd && { kind: 'take', take, at: runEnd.getTime(), cut: runEnd };
  // A take that was superseded while it was open ended when the next one opened.
  const next = later.find(({ iteration }) => iteration === take.iteration);
  const endedAt = take.endedAt ?? next?.openedAt ?? runEnd;
  return endedAt && { kind: 'take', take: { ...take, endedAt }, at: endedAt.getTime(), cut: null };
}

function evaluationParts(rows: GroupRow[], endedAt: Date | null): Part[] {
  const evaluated = Map.groupBy(
    rows.filter(({ group }) => group.kind === 'eval'),
    ({ group }) => traceOf(group),
  );
  return [...evaluated].flatMap(([evaluation, of]): Part[] => {
    const [first] = of;
    if (!first) return [];
    const ends = of.map(({ group, isSettled }) => (isSettled ? group.endedAt?.getTime() : null) ?? null);
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
