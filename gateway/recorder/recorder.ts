import type { CallRecord } from '../../store/queries/record-calls.ts';

/** Keeps calls (invariant 1). */
export interface Recorder {
  /**
   * Resolves once the call is committed, or refused: its attempt is closed, or what it had reserved of the trial's budgets was lost.
   * Rejects when it could not be committed in time; it then does not count as completed, even if the commit succeeds later.
   */
  record(call: CallRecord): Promise<'recorded' | 'refused'>;
  /** Makes `close` wait for work that may record more: after a refused record comes one that gives the reason. */
  keep(work: Promise<unknown>): void;
  /** Waits for the queued records, and for the work that `close` waits for. */
  close(): Promise<void>;
}
