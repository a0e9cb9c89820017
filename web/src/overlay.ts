export type Line = {
  label: string;
  values: (number | null)[];
  /** The number of its color. Absent: its place among the lines. */
  color?: number;
  /** True for a line of the second of two runs. */
  isDashed?: boolean;
  /** The values under the pointer, where they are not those of its places. */
  under?: (number | null)[];
};
export type Chart = {
  title: string;
  /** Ascending. */
  x: number[];
  xLabel: string;
  lines: Line[];
  /** Filled between these two, such as the mean less and plus the standard deviation. */
  band?: { low: (number | null)[]; high: (number | null)[] };
  hint?: string;
  /** True when two runs have places between those of each other, such as minutes: a line has its value before there. */
  isCarried?: boolean;
  /** True when it has the places of two runs. */
  isMerged?: boolean;
};

/** Returns the charts of a run with the lines of another run in them, dashed, and the charts that only the other run has. */
export function overlay(own: readonly Chart[], other: readonly Chart[], name: string): Chart[] {
  const both = own.map((chart) => {
    const over = other.find(({ title }) => title === chart.title);
    return over ? merged(chart, over, name) : chart;
  });
  const only = other.filter(({ title }) => !own.some((chart) => chart.title === title));
  return [...both, ...only.map((over) => merged({ ...over, x: [], lines: [], band: undefined }, over, name))];
}

function merged(own: Chart, other: Chart, name: string): Chart {
  const { x, rowsOf } = mergedPlaces(own.x, other.x);
  const spread = (rows: readonly number[], values: readonly (number | null)[]): (number | null)[] => {
    const all = x.map((): number | null => null);
    for (const [i, row] of rows.entries()) all[row] = values[i] ?? null;
    return all;
  };
  const placed = (rows: readonly number[], values: readonly (number | null)[]) => {
    const all = spread(rows, values);
    return { values: all, ...(own.isCarried ? { under: carried(rows, all) } : {}) };
  };
  const colorOf = (label: string, i: number): number => {
    const same = own.lines.findIndex((line) => line.label === label);
    return same < 0 ? own.lines.length + i : same;
  };
  return {
    ...own,
    x,
    isMerged: true,
    lines: [
      ...own.lines.map((line) => ({ ...line, ...placed(rowsOf.own, line.values) })),
      ...other.lines.map(({ label, values }, i) => ({
        label: `${name}: ${label}`,
        ...placed(rowsOf.other, values),
        color: colorOf(label, i),
        isDashed: true,
      })),
    ],
    ...(own.band ? { band: { low: spread(rowsOf.own, own.band.low), high: spread(rowsOf.own, own.band.high) } } : {}),
  };
}

/** Returns the places of both, ascending, and the row of each place of each. A place that one has several times stays as many rows. */
function mergedPlaces(own: readonly number[], other: readonly number[]) {
  const x: number[] = [];
  const rowsOf: { own: number[]; other: number[] } = { own: [], other: [] };
  while (rowsOf.own.length < own.length || rowsOf.other.length < other.length) {
    const [left = Infinity, right = Infinity] = [own[rowsOf.own.length], other[rowsOf.other.length]];
    if (left <= right) rowsOf.own.push(x.length);
    if (right <= left) rowsOf.other.push(x.length);
    x.push(Math.min(left, right));
  }
  return { x, rowsOf };
}

/** Returns the values of a line with the one before at the places between its own, up to its last value. */
function carried(rows: readonly number[], values: readonly (number | null)[]): (number | null)[] {
  const last = values.findLastIndex((value) => value !== null);
  const isOwn = new Set(rows);
  let before: number | null = null;
  return values.map((value, i) => {
    before = value ?? before;
    return isOwn.has(i) || i > last ? value : before;
  });
}
