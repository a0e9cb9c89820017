import type { RunStatus } from '../../store/schema.ts';
import type { TimelineTake } from '../../store/queries/read-timeline.ts';

type Run = { status: RunStatus; reason: string | null };
type Take = Pick<TimelineTake, 'status' | 'batchAt' | 'trainedAt' | 'version' | 'publications' | 'progress'>;

/** Says what an open take waits for, as far as the record shows it. Null when it waits for nothing: the take or its run has ended. */
export function whyStepWaits(
  run: Run,
  { status, batchAt, trainedAt, version, publications, progress }: Take,
): string | null {
  if (status !== 'open' || (run.status !== 'running' && run.status !== 'blocked')) return null;
  if (run.reason !== null) return run.reason;
  if (trainedAt) {
    const confirmed = publications.find((each) => each.version === version)?.replicas ?? 0;
    return `for the publication of version ${version}: ${many(confirmed, 'engine has', 'engines have')} confirmed it so far`;
  }
  if (batchAt) return 'for its train step: the batch is made, and no version yet';
  const { openGroups, underWay, verifying, unopened, oldest } = progress;
  if (openGroups === 0)
    return 'for its next groups or its batch: no group of it is open. A run that is paused waits here too; `npx trialgate status` says so';
  const trials = [
    `${many(underWay, 'trial is', 'trials are')} under way${verifying > 0 ? ` (${verifying} being verified)` : ''}`,
    ...(unopened > 0 ? [`${many(unopened, 'has', 'have')} not been opened`] : []),
  ].join(', ');
  const longest = oldest ? `. Longest: ${oldest.trialId}, ${Math.round(oldest.seconds)} s` : '';
  return `for ${many(openGroups, 'group', 'groups')}: ${trials}${longest}`;
}

const many = (count: number, one: string, others: string): string => `${count} ${count === 1 ? one : others}`;
