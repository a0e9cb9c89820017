export type Line = {
  label: string;
  values: (number | null)[];
  /** The number of its color. Absent: its place among the lines. */
  color?: number;
  /** True for a line of the second of two runs. */
  isDashed?: boolean;
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
  /** True when it has the places of two runs: most lines have no value where only the other run has one. */
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
  const x = [...new Set([...own.x, ...other.x])].toSorted((a, b) => a - b);
  const at = new Map(x.map((place, i) => [place, i]));
  const spread = (places: readonly number[], values: readonly (number | null)[]): (number | null)[] => {
    const all = x.map((): number | null => null);
    for (const [i, place] of places.entries()) all[at.get(place) ?? 0] = values[i] ?? null;
    return all;
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
      ...own.lines.map((line) => ({ ...line, values: spread(own.x, line.values) })),
      ...other.lines.map(({ label, values }, i) => ({
        label: `${name}: ${label}`,
        values: spread(other.x, values),
        color: colorOf(label, i),
        isDashed: true,
      })),
    ],
    ...(own.band ? { band: { low: spread(own.x, own.band.low), high: spread(own.x, own.band.high) } } : {}),
  };
}
