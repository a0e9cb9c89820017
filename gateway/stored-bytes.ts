import type { TrialNow } from '../store/queries/find-trials.ts';
import { bytesBudgetOf } from '../store/trial-bytes.ts';
import { Failure } from './failure.ts';

/** The database keeps no more of this trial than its budget of bytes. The record that says so uses up what is left of it. */
export class BytesUsedUp extends Failure {
  constructor({ budgets }: Pick<TrialNow, 'budgets'>) {
    super(429, 'budget_exhausted', `the trial's budget of ${bytesBudgetOf(budgets)} stored bytes is used up (budgets.bytes)`, { retryable: false });
  }
}

export const hasBytesLeft = ({ budgets, usedBytes }: Pick<TrialNow, 'budgets' | 'usedBytes'>): boolean => usedBytes < bytesBudgetOf(budgets);
