/** The variable that is set while `npm test` runs, and not in the full set. */
export const IN_GATE = 'TRIALGATE_TEST_GATE';

/** Returns the cases of a test: `npm test` leaves out `others`, which take the same way through the code once more. */
export const casesOf = <T>(cases: readonly T[], others: readonly T[]): readonly T[] =>
  process.env[IN_GATE] ? cases : [...cases, ...others];
