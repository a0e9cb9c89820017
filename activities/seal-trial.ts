import { sealTrial as seal } from '../store/queries/seal-trial.ts';
import type { Outcome } from '../store/schema.ts';
import type { Deps } from './deps.ts';

export type Sealing = {
  trialId: string;
  attempt: number;
  outcome: Outcome;
  reason?: string;
  rewards?: Record<string, number>;
  seconds?: Record<string, number>;
  host?: string;
};

/** Ends an attempt. An `infra_error` leaves the trial open to the next one; every other outcome is final. */
export const sealTrial = (deps: Deps) => async (input: Sealing): Promise<void> => {
  await seal(deps.db, input);
};
