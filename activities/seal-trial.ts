import { TrialgateError } from '../store/errors.ts';
import { sealTrial as seal } from '../store/queries/seal-trial.ts';
import type { Outcome } from '../store/schema.ts';
import type { Deps } from './deps.ts';

export type Sealing = {
  trialId: string;
  /** Absent: the current one. */
  attempt?: number;
  outcome: Outcome;
  reason?: string;
  rewards?: Record<string, number>;
  seconds?: Record<string, number>;
  host?: string;
  final?: boolean;
};

/** Ends an attempt. An `infra_error` leaves the trial open to the next one; every other outcome is final. */
export const sealTrial = (deps: Deps) => async (input: Sealing): Promise<void> => {
  try {
    await seal(deps.db, input);
  } catch (error) {
    // There is nothing to end, or another attempt stands: trying again would change neither.
    if (!(error instanceof TrialgateError)) throw error;
  }
};
