/** The parts of `npm test`, the quickest first: checks of the source; tests without the model; the gateway's tests again in workerd; tests with the model. */
export const TIERS = ['checks', 'fast', 'workerd', 'real'] as const;
export type Tier = (typeof TIERS)[number];
