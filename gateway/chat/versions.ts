import type { VersionSpan } from '../../store/schema.ts';
import type { LabelSpan } from './tokens.ts';

/** Returns the version in a label `{run}@{version}`. */
export function versionOf(label: string | null): number | null {
  const version = /@(\d{1,9})$/.exec(label ?? '')?.[1];
  return version === undefined ? null : Number(version);
}

/**
 * Returns the versions behind an engine's labels as consecutive spans over all tokens, or null when the labels do not cover the tokens. A
 * label of another run is `foreign`. Without a run, all labels must belong to the run that the first label names.
 */
export function versionSpans(spans: readonly LabelSpan[], runId: string | null, tokens: number): VersionSpan[] | 'foreign' | null {
  const known: VersionSpan[] = [];
  const run = runId ?? spans[0]?.version.replace(/@\d{1,9}$/, '');
  for (const { version: label, start, end } of spans.filter((span) => span.end > span.start)) {
    const version = label === `${run}@${versionOf(label)}` ? versionOf(label) : null;
    if (version === null) return 'foreign';
    if (start !== (known.at(-1)?.end ?? 0)) return null;
    known.push({ version, start, end });
  }
  return (known.at(-1)?.end ?? 0) === tokens && known.length > 0 ? known : null;
}
