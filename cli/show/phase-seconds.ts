import type { RunRecord } from './run-record.ts';

type Iteration = Pick<RunRecord['iterations'][number], 'seconds' | 'metrics'>;

/**
 * Returns the seconds that a phase of an iteration took, or null. The train step's are those of the attempt that made the version. What the
 * record has as a phase's seconds also has the time during which the run was stopped or waited for its GPU worker.
 */
export function phaseSeconds({ seconds, metrics }: Iteration, phase: string): number | null {
  const recorded = seconds[phase] ?? null;
  return phase === 'train' && recorded !== null ? (metrics['timing_s/step'] ?? recorded) : recorded;
}
