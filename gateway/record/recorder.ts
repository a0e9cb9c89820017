import type { CallRecord } from '../../store/queries/record-calls.ts';

/** Records calls durably (invariant 1). */
export interface Recorder {
  /**
   * Resolves once the call is committed or refused, because its attempt is closed or its reservation was lost. Rejects when it could not be
   * committed in time; the call then does not count as completed, even if the commit succeeds later.
   * `runId` is for the log.
   */
  record(call: CallRecord, runId?: string | null): Promise<'recorded' | 'refused'>;
  /** Makes `close` wait for work that may record more, because after a refused record comes one with the reason. */
  keep(work: Promise<unknown>): void;
  /** Waits for queued records and for kept work. */
  close(): Promise<void>;
}
