import type { VersionSpan } from '../../../store/schema.ts';
import type { WeightVersionSpan } from '../../engines/call-result.ts';

/** Returns the version in a weight version `{run}@{version}`. */
export function versionOf(weightVersion: string | null): number | null {
  const version = /@(\d{1,9})$/.exec(weightVersion ?? '')?.[1];
  return version === undefined ? null : Number(version);
}

/**
 * Returns the versions behind an engine's weight versions as consecutive spans over all tokens, or null when the weight versions do not cover the tokens. A
 * weight version of another run is `foreign`. Without a run, all weight versions must belong to the run that the first weight version names.
 */
export function versionSpans(
  spans: readonly WeightVersionSpan[],
  runId: string | null,
  tokens: number,
): VersionSpan[] | 'foreign' | null {
  const known: VersionSpan[] = [];
  const run = runId ?? spans[0]?.weightVersion.replace(/@\d{1,9}$/, '');
  for (const { weightVersion, start, end } of spans.filter((span) => span.end > span.start)) {
    const version = weightVersion === `${run}@${versionOf(weightVersion)}` ? versionOf(weightVersion) : null;
    if (version === null) return 'foreign';
    if (start !== (known.at(-1)?.end ?? 0)) return null;
    known.push({ version, start, end });
  }
  return (known.at(-1)?.end ?? 0) === tokens && known.length > 0 ? known : null;
}
