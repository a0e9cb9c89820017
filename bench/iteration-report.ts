import { median } from '../cli/show/statistics.ts';
import { table } from '../cli/show/table.ts';

/** The wall seconds of one iteration, of the same requests sent directly to the engine, and of the train step alone. */
export type IterationRow = {
  iteration: number;
  trialgate: number;
  direct: number;
  train: number;
  /** Trialgate's seconds divided by `direct` + `train`. */
  ratio: number;
  tokens: number;
  /** The seconds from the iteration's start to the first call of its first trial, and of its last. */
  firstCalls: { first: number; last: number };
  /** The seconds of each phase. */
  seconds: Record<string, number>;
};

/** Returns the table of `bench/results/iteration.txt` with its medians. */
export function iterationReport(rows: IterationRow[], trl: { seconds: number }[]): string {
  const f = (value: number) => value.toFixed(1);
  const text = table(
    [
      'iteration',
      'tokens',
      'Trialgate s',
      'first call',
      'last first call',
      'rollout',
      'batch',
      'train',
      'publish',
      'engine direct s',
      'step alone s',
      'ratio',
    ],
    rows.map((row) => [
      String(row.iteration),
      String(row.tokens),
      f(row.trialgate),
      f(row.firstCalls.first),
      f(row.firstCalls.last),
      ...['rollout', 'batch', 'train', 'publish'].map((phase) => f(row.seconds[phase] ?? 0)),
      f(row.direct),
      f(row.train),
      row.ratio.toFixed(2),
    ]),
  );
  const summary = [
    `median: Trialgate ${f(median(rows.map((row) => row.trialgate)))} s an iteration, ${median(rows.map((row) => row.ratio)).toFixed(2)} × (engine direct + step alone)`,
    ...(trl.length
      ? [
          `TRL GRPOTrainer, same model and shape: ${f(median(trl.map((step) => step.seconds)))} s a step (median of ${trl.length})`,
        ]
      : []),
  ];
  return `${text}\n\n${summary.join('\n')}`;
}
