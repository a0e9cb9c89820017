/**
 * The parts of `npm test`, the quickest first: checks of the source; tests without Temporal and the model; the gateway's tests again in workerd;
 * tests on Temporal; tests with the model.
 */
export const TIERS = ['checks', 'fast', 'workerd', 'temporal', 'real'] as const;
export type Tier = (typeof TIERS)[number];
