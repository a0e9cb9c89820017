/** The ends of a trial. `timed_out`: its agent used up its own time, without its waits for the engine. */
export const OUTCOMES = [
  'scored',
  'truncated',
  'timed_out',
  'agent_error',
  'verifier_error',
  'infra_error',
  'cancelled',
] as const;
export type Outcome = (typeof OUTCOMES)[number];
