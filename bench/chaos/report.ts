import { median } from '../../cli/show/statistics.ts';
import { table } from '../../cli/show/table.ts';
import type { Outcome } from './one-run.ts';
import { sharesOf } from './repeated.ts';

const seconds = (value: number): string => (Number.isNaN(value) ? '–' : value.toFixed(1));
const percent = (value: number): string => `${(100 * value).toFixed(1)}%`;
const worst = (values: number[]): number => (values.length === 0 ? Number.NaN : Math.max(...values));

/** Returns the report: for each kind of fault and for all, their number and the time until the run next finished something; then the runs. */
export function reportOf(outcomes: Outcome[]): string {
  if (outcomes.length === 0) return 'no run came to its end';
  const struck = outcomes.flatMap(({ faults }) => faults);
  const row = (name: string, faults: typeof struck): string[] => {
    const recovered = faults.flatMap((fault) => fault.recovered ?? []);
    return [name, `${faults.length}`, `${recovered.length}`, seconds(median(recovered)), seconds(worst(recovered))];
  };
  const kindOf = (fault: string): string => (fault.includes(' + ') ? 'two at once' : fault);
  const names = [...new Set(struck.map(({ fault }) => kindOf(fault)))].toSorted();
  const broken = outcomes.flatMap((each) => each.broken.map((what) => `${each.run}: ${what}`));
  const resumed = outcomes.flatMap((each) => each.resumed.map((why) => `${each.run}: ${why}`));
  return [
    table(
      ['fault', 'count', 'went on', 'median s', 'worst s'],
      [
        ...names.map((name) =>
          row(
            name,
            struck.filter(({ fault }) => kindOf(fault) === name),
          ),
        ),
        row('all', struck),
      ],
    ),
    '',
    table(
      [
        'settings',
        'runs',
        'finished',
        'run s, median',
        'worst',
        'trials again, median',
        'worst',
        'train steps again, median',
        'worst',
        'resumed by hand',
        'replies watched',
      ],
      [...Map.groupBy(outcomes, ({ settings }) => settings), ['all', outcomes] as const].map(([name, its]) =>
        runsRow(name, its),
      ),
    ),
    '',
    ...outcomes.filter(({ ended }) => ended !== 'completed').map(({ run, ended }) => `${run} did not finish: ${ended}`),
    ...resumed.map((each) => `blocked, then resumed: ${each}`),
    broken.length === 0
      ? 'invariants 1, 5, 6, 7 and 11 hold in every run, and nothing was left running'
      : `what does not hold (${broken.length}):`,
    ...broken.map((each) => `  ${each}`),
  ].join('\n');
}

function runsRow(name: string, outcomes: readonly Outcome[]): string[] {
  const shares = outcomes.flatMap(({ repeated }) => (repeated ? [sharesOf(repeated)] : []));
  const [trials, steps] = [shares.map((share) => share.trials), shares.map((share) => share.train)];
  return [
    name,
    `${outcomes.length}`,
    `${outcomes.filter(({ ended }) => ended === 'completed').length}`,
    ...[median, worst].map((of) => seconds(of(outcomes.map((each) => each.seconds)))),
    ...[trials, steps].flatMap((values) => [median, worst].map((of) => percent(of(values)))),
    `${outcomes.reduce((sum, each) => sum + each.resumed.length, 0)}`,
    `${outcomes.reduce((sum, each) => sum + each.witnessed, 0)}`,
  ];
}
