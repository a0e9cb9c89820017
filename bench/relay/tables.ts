import { table } from '../../cli/show/table.ts';
import type { LoadCounts } from '../../tests/support/scenarios/retrying-load.ts';
import { median } from '../gateway/report.ts';
import type { Measured } from './streams.ts';

type Figure = (one: Measured) => number;

/** Each has the median over the repeats, but counts of faults have their sum. */
const FIGURES: [title: string, digits: number, of: Figure, isSum?: true][] = [
  ['streams', 0, ({ begun }) => begun],
  ['at once', 0, ({ open }) => open],
  ['delay p50 ms', 2, ({ delayMs }) => delayMs.p50],
  ['p99', 2, ({ delayMs }) => delayMs.p99],
  ['first p50 ms', 2, ({ firstMs }) => firstMs.p50],
  ['first p99', 2, ({ firstMs }) => firstMs.p99],
  ['gateway MiB', 0, ({ gatewayMiB }) => gatewayMiB],
  ['cores', 2, ({ gatewayCores }) => gatewayCores],
  ['workers MiB', 0, ({ workersMiB }) => workersMiB],
  ['cores', 2, ({ workersCores }) => workersCores],
  ['errors', 0, ({ errors }) => errors, true],
  ['lost', 0, ({ lost }) => lost, true],
  ['twice', 0, ({ twice }) => twice, true],
];

/** A row for each load and way, and one with what the relay adds. */
export function streamsTable(measured: readonly Measured[]): string {
  const rows = [...Map.groupBy(measured, ({ load }) => load)].flatMap(([load, all]) => {
    const ways = Map.groupBy(all, ({ way }) => way);
    const value = (way: Measured['way'], [, , of, isSum]: (typeof FIGURES)[number]) => {
      const values = (ways.get(way) ?? []).map(of);
      return isSum ? values.reduce((sum, each) => sum + each, 0) : median(values);
    };
    const shown = (way: Measured['way']) => FIGURES.map((figure) => value(way, figure).toFixed(figure[1]));
    const added = FIGURES.map((figure) => (value('relay', figure) - value('by URL', figure)).toFixed(figure[1]));
    return [
      [load, 'by URL', ...shown('by URL')],
      [load, 'relay', ...shown('relay')],
      [load, 'added', ...added],
    ];
  });
  return table(['load', 'engine', ...FIGURES.map(([title]) => title)], rows);
}

export function cutsTable(cuts: number, counts: LoadCounts): string {
  const { tries, sampled, completed, ended, refused, cut, lost, twice, unsampled, odd, notClean } = counts;
  return table(
    [
      'cuts',
      'requests',
      'sampled',
      'completed',
      'seen end',
      'refused',
      'cut',
      'lost',
      'twice',
      'not sampled',
      'odd',
      'not by ids',
    ],
    [
      [
        cuts,
        tries,
        sampled,
        completed,
        ended,
        refused,
        cut,
        lost.length,
        twice.length,
        unsampled.length,
        odd.length,
        notClean,
      ].map(String),
    ],
  );
}
