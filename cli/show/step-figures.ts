import type { RunRecord } from './run-record.ts';

const whole = (value: number): string => Math.round(value).toLocaleString('en');
const percent = (share: number): string => `${(100 * share).toFixed(1)} %`;

/** The figures that people see of a step, by metric. `show --json` has all of them. */
const FIGURES: [metric: string, text: (value: number) => string][] = [
  ['perf/distinct_tokens_per_second', (value) => `${whole(value)} distinct tokens/s`],
  ['perf/trained_tokens_per_second', (value) => `${whole(value)} trained tokens/s`],
  ['perf/compute_bits', (value) => `computed in ${value === 32 ? 'float32' : 'bfloat16'}`],
  ['perf/mfu/actor', (value) => `MFU ${percent(value)}`],
  ['perf/max_memory_allocated_gb', (value) => `${value.toFixed(1)} GiB on a GPU`],
  ['perf/max_host_memory_gb', (value) => `${value.toFixed(1)} GiB of main memory`],
  ['perf/idle_share/max', (value) => `idle ${percent(value)}`],
  ['rollout_corr/kl', (value) => `gap to the engine ${value.toExponential(1)} nats`],
];

/** Says how the newest step that has figures used its devices. Null: there is none. */
export function stepFigures(
  iterations: Pick<RunRecord['iterations'][number], 'iteration' | 'metrics'>[],
): string | null {
  const step = iterations.findLast(({ metrics }) => 'perf/distinct_tokens_per_second' in metrics);
  if (!step) return null;
  const figures = FIGURES.flatMap(([metric, text]) => {
    const value = step.metrics[metric];
    return value === undefined ? [] : [text(value)];
  });
  return `train step of iteration ${step.iteration}: ${figures.join(', ')}`;
}
