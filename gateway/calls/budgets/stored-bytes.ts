import type { TrialNow } from '../../../store/queries/find-trials.ts';
import { bytesBudgetOf } from '../../../store/trial-bytes.ts';
import { Failure } from '../../failure.ts';

/** The trial's budget of bytes is used up, so the store keeps no more for it. The record of this refusal uses up the rest of the budget. */
export class BytesUsedUp extends Failure {
  constructor({ budgets }: Pick<TrialNow, 'budgets'>) {
    super(
      429,
      'budget_exhausted',
      `the trial's budget of ${bytesBudgetOf(budgets)} stored bytes is used up (budgets.bytes)`,
      { retryable: false },
    );
  }
}

export const hasBytesLeft = ({ budgets, usedBytes }: Pick<TrialNow, 'budgets' | 'usedBytes'>): boolean =>
  usedBytes < bytesBudgetOf(budgets);
