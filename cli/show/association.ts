/** The observations with one score. `of` counts all of them, and `marked` counts those with a mark. */
export type Observation = { score: number; marked: number; of: number };

/**
 * Returns how strongly the marks go with high scores, in standard deviations from chance. Chance means that the marks fall on a stratum's
 * observations at random (the Cochran–Mantel–Haenszel test for trend). The result is 0 where chance allows only one outcome.
 */
export function association(strata: readonly (readonly Observation[])[]): number {
  let [excess, variance] = [0, 0];
  for (const rows of strata) {
    const total = sum(rows, ({ of }) => of);
    if (total < 2) continue;
    const marked = sum(rows, (row) => row.marked);
    const mean = sum(rows, ({ score, of }) => score * of) / total;
    const spread = sum(rows, ({ score, of }) => of * (score - mean) ** 2) / (total - 1);
    excess += sum(rows, (row) => row.marked * (row.score - mean));
    variance += (spread * marked * (total - marked)) / total;
  }
  return variance > 0 ? excess / Math.sqrt(variance) : 0;
}

const sum = (rows: readonly Observation[], valueOf: (row: Observation) => number): number =>
  rows.reduce((total, row) => total + valueOf(row), 0);
