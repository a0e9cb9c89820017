/** The ends of a trial. */
export const OUTCOMES = ['scored', 'truncated', 'agent_error', 'verifier_error', 'infra_error', 'cancelled'] as const;
export type Outcome = (typeof OUTCOMES)[number];
