import type { RunStatus } from '../../store/schema.ts';
import type { TimelineTake } from '../../store/queries/read-timeline.ts';

type Run = { status: RunStatus; reason: string | null };
type Take = Pick<TimelineTake, 'status' | 'batchAt' | 'trainedAt' | 'version' | 'publications' | 'progress'>;

/** Says in sentences what an open take waits for, as far as the record shows it. Null when it waits for nothing: the take or its run has ended. */
export function whyStepWaits(
  run: Run,
  { status, batchAt, trainedAt, version, publications, progress }: Take,
): string | null {
  if (status !== 'open' || (run.status !== 'running' && run.status !== 'blocked')) return null;
  if (run.status === 'blocked') return `The run is blocked: ${run.reason ?? 'the record has no reason'}`;
  if (trainedAt)
    return publications.some((each) => each.version === version)
      ? `The step waits for its end: version ${version} is published.`
      : `The step waits for the publication of version ${version}.`;
  if (batchAt) return 'The step waits for its train step: the batch is made, and no version yet.';
  if (progress === null) return null;
  const { openGroups, ofEarlier, unclaimed, underWay, verifying, betweenAttempts, unopened, stragglers, oldest } =
    progress;
  const late = stragglers > 0 ? ` ${many(stragglers, 'trial')} of ended groups still ${verb(stragglers, 'run')}.` : '';
  const claims = unclaimed > 0 ? [`for a program to claim ${many(unclaimed, 'group')}`] : [];
  if (openGroups === 0 && unclaimed === 0)
    return `The step waits for its next groups or its batch: no group is open.${late} If the run is paused, \`npx trialgate status\` says so.`;
  const earlier = ofEarlier > 0 ? ` (${ofEarlier} of earlier iterations)` : '';
  const own = openGroups > 0 ? [`for ${many(openGroups, 'group')}${earlier}`] : [];
  const parts = [
    ...(underWay > 0
      ? [`${many(underWay, 'trial')} under way${verifying > 0 ? ` (${verifying} being verified)` : ''}`]
      : []),
    ...(betweenAttempts > 0 ? [`${many(betweenAttempts, 'trial')} between two attempts or out of attempts`] : []),
    ...(unopened > 0 ? [`${many(unopened, 'trial')} not opened`] : []),
  ];
  const trials = parts.length > 0 ? `: ${parts.join(', ')}` : '';
  const longest = oldest ? ` Longest: ${oldest.trialId}, ${Math.round(oldest.seconds)} s.` : '';
  return `The step waits ${[...claims, ...own].join(', and ')}${trials}.${longest}`;
}

const many = (count: number, one: string): string => `${count} ${one}${count === 1 ? '' : 's'}`;
const verb = (count: number, plural: string): string => (count === 1 ? `${plural}s` : plural);
