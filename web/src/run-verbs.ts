import type { RunDetails, Take } from '../../clients/typescript/client.ts';

export type PlainVerb = 'pause' | 'resume' | 'stop' | 'cancel' | 'redo';

/** Returns the verbs that a run in this state may follow, in the order of their buttons. A pause ends by a resume. */
export function verbsOf(
  {
    status,
    config,
    rescores,
    paused_until: pausedUntil,
  }: Pick<RunDetails, 'status' | 'config' | 'rescores' | 'paused_until'>,
  takes: readonly Take[],
): PlainVerb[] {
  const redo: PlainVerb[] = takes.length > 0 ? ['redo'] : [];
  switch (status) {
    case 'running':
      return [pausedUntil === null ? 'pause' : 'resume', 'stop', 'cancel', ...redo];
    case 'blocked':
      return ['resume', 'cancel', ...redo];
    case 'failed':
    case 'cancelled':
      return ['resume', ...redo];
    case 'completed':
      // What a rescoring trained is published by its resume.
      return [...(rescores === null && isWhole(config, takes) ? [] : ['resume' as const]), ...redo];
  }
}

/** False when `stop` ended the run before its last iteration. */
function isWhole(config: unknown, takes: readonly Take[]): boolean {
  const wanted = typeof config === 'object' && config !== null && 'iterations' in config ? config.iterations : null;
  const done = takes.filter(({ status }) => status === 'done').map(({ iteration }) => iteration);
  return typeof wanted !== 'number' || Math.max(-1, ...done) >= wanted - 1;
}

/** Returns the versions that a fork can begin from, the newest first. The run refuses one whose checkpoint was pruned. */
export const versionsOf = (takes: readonly Take[]): number[] =>
  [...new Set([0, ...takes.flatMap(({ trained_version: version }) => (version === null ? [] : [version]))])].toSorted(
    (a, b) => b - a,
  );

/** Returns the take that a redo would run again. */
export function lastTakeOf(takes: readonly Take[]): { iteration: number; take: number } | null {
  const [last] = takes.toSorted((a, b) => b.iteration - a.iteration || b.take - a.take);
  return last ? { iteration: last.iteration, take: last.take } : null;
}
