/** The variable that is set while `npm test` runs, and not in the full set. */
export const IN_GATE = 'TRIALGATE_TEST_GATE';
