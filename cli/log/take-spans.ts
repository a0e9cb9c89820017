import { and, asc, eq, isNotNull, isNull } from 'drizzle-orm';
import type { Database } from '../../store/database.ts';
import { batchOf, ofTake, type TakeKey } from '../../store/queries/takes.ts';
import { batches, groups, policyVersions, publications, runs, trials, type iterations } from '../../store/schema.ts';
import { metricAttributes, originOf, spanKey, trialKey, type Span, type SpanKey } from './span.ts';
import { traceOf } from './span-parts.ts';

type Run = typeof runs.$inferSelect;
type Take = typeof iterations.$inferSelect;

/** Returns the spans of a take of an iteration: its train step, the publication of the version that this made, and its own. */
export async function takeSpans(db: Database, run: Run, take: Take): Promise<Span[]> {
  const origin = originOf(run);
  const trace = `${take.iteration}.${take.take}`;
  const key = spanKey(origin, trace);
  const ofTrace = { 'rl.loop.iteration': take.iteration, 'trialgate.take': take.take };
  const [version] = await db.select().from(policyVersions).where(ofTake(policyVersions, take));
  const below: Span[] = [];
  if (version) {
    const made = version.createdAt.getTime();
    const attributes = { ...ofTrace, 'trialgate.trained_version': version.version };
    const [[batch], confirmed, used] = await Promise.all([
      db.select().from(batches).where(ofTake(batches, take)),
      db
        .select()
        .from(publications)
        .where(and(eq(publications.runId, run.id), eq(publications.version, version.version))),
      usedTrials(db, run, take),
    ]);
    below.push({
      ...spanKey(origin, trace, `train ${trace}`),
      parent: key.span,
      name: 'rl.train',
      start: made - 1000 * (take.seconds['train'] ?? 0),
      end: made,
      attributes: {
        ...attributes,
        'trialgate.policy_version': version.parentVersion,
        'rl.train.batch_size': batch?.samples,
        'trialgate.trials': batch?.trials,
        'trialgate.skipped': version.skipped,
        ...metricAttributes(version.metrics),
      },
      links: used,
    });
    // A repaired engine confirms a version again, and another may join, long after the take has ended.
    const until = take.endedAt?.getTime() ?? Number.POSITIVE_INFINITY;
    const inTime = confirmed.filter(({ confirmedAt }) => confirmedAt.getTime() <= until);
    if (confirmed.length > 0)
      below.push({
        ...spanKey(origin, trace, `sync ${trace}`),
        parent: key.span,
        name: 'rl.sync',
        start: made,
        end: Math.min(until, Math.max(...confirmed.map(({ confirmedAt }) => confirmedAt.getTime()))),
        attributes: {
          ...attributes,
          'trialgate.replicas': inTime.length,
          'trialgate.canary_difference': Math.max(...confirmed.map(({ canaryDifference }) => canaryDifference)),
        },
      });
  }
  const own: Span = {
    ...key,
    name: 'rl.loop',
    start: take.openedAt.getTime(),
    end: (take.endedAt ?? run.endedAt ?? take.openedAt).getTime(),
    attributes: {
      ...ofTrace,
      'trialgate.status': take.status,
      'trialgate.policy_version': take.policyVersion,
      'trialgate.trained_version': take.trainedVersion,
      ...Object.fromEntries(
        Object.entries(take.seconds).map(([phase, seconds]) => [`trialgate.seconds.${phase}`, seconds]),
      ),
    },
    links: [spanKey(origin, 'run')],
  };
  return [...below, own];
}

/** Returns the spans of the trials whose rewards a step used: some may be of earlier iterations, and those of a rescored run are of another run. */
async function usedTrials(db: Database, run: Run, take: Take): Promise<SpanKey[]> {
  const source = run.rescores === null ? { run, take } : await rescored(db, run.rescores);
  if (source === null) return [];
  const rows = await db
    .select({ id: trials.id, group: { id: groups.id, runId: groups.runId } })
    .from(trials)
    .innerJoin(groups, eq(groups.id, trials.groupId))
    .where(and(ofTake(batchOf(trials), source.take), isNotNull(trials.rewards), isNull(groups.dropped)))
    .orderBy(asc(groups.iteration), asc(groups.ordinal), asc(trials.trialIndex));
  return rows.map(({ id, group }) => trialKey(originOf(source.run), traceOf(group), id));
}

/** Returns the take that a run trains on again, `{run}/{iteration}.{take}`; null when its run was deleted. */
async function rescored(db: Database, name: string): Promise<{ run: Run; take: TakeKey } | null> {
  const [, runId = '', iteration, take] = /^(.*)\/(\d+)\.(\d+)$/.exec(name) ?? [];
  const [run] = await db.select().from(runs).where(eq(runs.id, runId));
  return run ? { run, take: { runId, iteration: Number(iteration), take: Number(take) } } : null;
}
