import { and, asc, eq, isNotNull, max, or, sql, type SQL } from 'drizzle-orm';
import { unknownRun } from '../../activities/run/unknown-run.ts';
import type { Database } from '../../store/database.ts';
import { groups, iterations, policyVersions, runs, trials } from '../../store/schema.ts';
import { readRunRecord } from '../show/run-record.ts';
import { evaluationMetrics, iterationMetrics } from './logger-metrics.ts';
import { originOf } from './span.ts';

/**
 * A row of the log: the train step of an iteration, or an evaluation of the version that a step made. Step 0 is before the first train step.
 * A step has one train step and may have several evaluations, which have numbers.
 */
export type EntryId = [kind: 'training' | 'val', step: number, number: number];
export type Entry = { id: EntryId; time: number; metrics: Record<string, number> };
export type Pending = { id: EntryId; at: Date } & (
  { iteration: number; take: number } | { evaluation: string; iteration?: undefined }
);

/** The content that a logger should have of a run. */
export type RunLog = {
  /** The run's name, or after a redo `{run}@{version}`: the branch that began with this version. */
  name: string;
  /** Tells the run from an earlier one of the same name. */
  key: string;
  /** Does the same, and is one for all branches. */
  origin: string;
  forkedFrom: string | null;
  config: unknown;
  status: (typeof runs.$inferSelect)['status'];
  createdAt: Date;
  endedAt: Date | null;
  /** True while an evaluation has just ended: it and what came after it are in the next reading. */
  isSettling: boolean;
  /** The entries in the order of the record. No entry changes later. */
  entries: Pending[];
};

export const keyOf = (id: EntryId): string => id.join(' ');

/** The groups of an evaluation open one after another within moments, so the record may have all of those that it has, but not yet the last. */
const EVALUATION_GRACE_MS = 20_000;

/**
 * Reads what a run's loggers are to have: the iterations that are done and not superseded, and the evaluations of their versions. A redo makes
 * a new branch of the policy's versions, and the log of a branch begins with the first step, so that every log has each step once.
 * @param withIncomplete true: also, of a run that has ended, evaluations of which a resume would run trials again
 */
export async function readRunLog(
  db: Database,
  runId: string,
  { withIncomplete = false }: { withIncomplete?: boolean } = {},
): Promise<RunLog> {
  const [[run], takes, versions, evaluations] = await Promise.all([
    db.select().from(runs).where(eq(runs.id, runId)),
    db
      .select()
      .from(iterations)
      .where(and(eq(iterations.runId, runId), isNotNull(iterations.endedAt)))
      .orderBy(asc(iterations.iteration)),
    db
      .select({ version: policyVersions.version, parent: policyVersions.parentVersion })
      .from(policyVersions)
      .where(eq(policyVersions.runId, runId)),
    db
      .select({
        id: sql<string>`regexp_replace(${groups.id}, '/[^/]*$', '')`,
        version: groups.policyVersion,
        isOver: sql<boolean>`bool_and(${groups.endedAt} is not null)`,
        isComplete: sql<boolean>`bool_and((select count(*) from ${trials} as trial where trial.group_id = groups.id and trial.outcome is not null) >= groups.size)`,
        at: max(groups.endedAt),
      })
      .from(groups)
      .where(and(eq(groups.runId, runId), eq(groups.kind, 'eval')))
      .groupBy(sql`1`, groups.policyVersion),
  ]);
  if (!run) throw await unknownRun(db, runId);
  const done = takes.filter(({ status }) => status === 'done');
  const stepOf = new Map([[0, 0], ...done.map((row) => [row.trainedVersion ?? -1, row.iteration + 1] as const)]);
  // No other version is published before the evaluation of the one before has ended.
  const left = new Set(done.map(({ policyVersion }) => policyVersion));
  const hasEnded = run.endedAt !== null;
  const fresh = Date.now() - EVALUATION_GRACE_MS;
  const found = evaluations.flatMap(({ id, version, isOver, isComplete, at }) => {
    const step = stepOf.get(version);
    if (step === undefined || at === null || !isOver) return [];
    if (!isComplete && !left.has(version) && !(hasEnded && withIncomplete)) return [];
    const evaluation = id.slice(runId.length + 1);
    const number = evaluation.split('.')[1];
    const isSettled = (left.has(version) && number === undefined) || hasEnded || at.getTime() < fresh;
    return [{ isSettled, entry: { id: ['val', step, Number(number ?? 0)] satisfies EntryId, at, evaluation } }];
  });
  const entries: Pending[] = [
    ...done.map(({ iteration, take, endedAt, openedAt }): Pending => ({
      id: ['training', iteration + 1, 0],
      at: endedAt ?? openedAt,
      iteration,
      take,
    })),
    ...found.map(({ entry }) => entry),
  ];
  // Later entries wait until an evaluation is settled, so that a log has the order of the record.
  const settling = found.filter(({ isSettled }) => !isSettled).map(({ entry }) => entry.at.getTime());
  const until = Math.min(...settling);
  const branch = newestBranch(
    versions,
    takes.flatMap(({ trainedVersion }) => trainedVersion ?? []),
  );
  const name = branch === null ? runId : `${runId}@${branch}`;
  return {
    name,
    key: `${name}-${run.createdAt.getTime().toString(36)}`,
    origin: originOf(run),
    forkedFrom: run.forkedFrom,
    config: run.config,
    status: run.status,
    createdAt: run.createdAt,
    endedAt: run.endedAt,
    isSettling: settling.length > 0,
    entries: entries
      .filter(({ at }) => at.getTime() < until)
      .toSorted((a, b) => a.at.getTime() - b.at.getTime() || a.id[1] - b.id[1]),
  };
}

/**
 * Returns the newest version that a redo made in the place of another one, also while a further redo runs. Null: nothing was redone.
 * @param trained the versions of the iterations that are done, and of those that a redo superseded
 */
function newestBranch(versions: { version: number; parent: number | null }[], trained: number[]): number | null {
  const first = new Map<number | null, number>();
  for (const { version, parent } of versions)
    first.set(parent, Math.min(version, first.get(parent) ?? Number.POSITIVE_INFINITY));
  const parents = new Map(versions.map(({ version, parent }) => [version, parent]));
  const again = trained.filter((version) => (first.get(parents.get(version) ?? null) ?? version) < version);
  return again.length === 0 ? null : Math.max(...again);
}

/** Reads the metrics of entries. */
export async function readEntries(db: Database, runId: string, pending: readonly Pending[]): Promise<Entry[]> {
  const record = await readRunRecord(db, runId, or(...pending.map((each) => groupsOf(runId, each))));
  return pending.flatMap((each) => {
    const time = each.at.getTime() / 1000;
    if (each.iteration === undefined) {
      const evaluation = record.evaluations.find(({ id }) => id === each.evaluation);
      return evaluation ? [{ id: each.id, time, metrics: evaluationMetrics(evaluation) }] : [];
    }
    const iteration = record.iterations.find((row) => row.iteration === each.iteration && row.take === each.take);
    return iteration ? [{ id: each.id, time, metrics: iterationMetrics(iteration) }] : [];
  });
}

/** Selects the groups of an entry. */
export const groupsOf = (runId: string, pending: Pending): SQL | undefined =>
  pending.iteration === undefined
    ? and(eq(groups.kind, 'eval'), sql`starts_with(${groups.id}, ${`${runId}/${pending.evaluation}/`})`)
    : and(eq(groups.iteration, pending.iteration), eq(groups.take, pending.take));
