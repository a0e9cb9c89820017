import { table } from '../../../cli/show/table.ts';
import { QUANTILES } from '../simulate/figures.ts';
import type { MeasuredFigures, PolicyRow, PolicyRunOptions } from './policy-run.ts';

/** Returns a table of each policy as it ran and as simulated over the same trials. */
export function policyReport(
  rows: PolicyRow[],
  { steps, warmUp, medianSeconds }: Omit<PolicyRunOptions, 'seed'>,
): string {
  const bands = QUANTILES.map((end, i) => `${(QUANTILES[i - 1] ?? 0) * 100}-${end * 100}%`);
  const baseline = rows.find(({ policy }) => policy === 'synchronous');
  const line = (
    { policy, staleness }: PolicyRow,
    how: string,
    figures: MeasuredFigures,
    sync: MeasuredFigures | undefined,
  ) => [
    `${staleness}`,
    policy,
    how,
    figures.useful.toFixed(3),
    figures.lost.toFixed(3),
    ((figures.rate * 3600) / medianSeconds).toFixed(0),
    sync ? (figures.rate / sync.rate).toFixed(1) : '–',
    figures.samplesPerStep.toFixed(1),
    figures.staleness.reduce((sum, share, age) => sum + share * age, 0).toFixed(2),
    ...figures.trainedShare.map((share) => (Number.isFinite(share) ? (100 * share).toFixed(0) : '–')),
  ];
  const lines = rows.flatMap((row) => [
    line(row, 'ran', row.measured, baseline?.measured),
    line(row, 'simulated', row.predicted, baseline?.predicted),
  ]);
  return [
    `The workflows on a Temporal server, ${steps} steps after ${warmUp}; the median trial takes ${medianSeconds} s. Below each row what the simulation says of the same trials.`,
    table(['limit', 'policy', 'how', 'useful', 'lost', 'samples/h', '× sync', 'a step', 'staleness', ...bands], lines),
  ].join('\n\n');
}
