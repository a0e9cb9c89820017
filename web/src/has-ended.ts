import type { RunDetails } from '../../clients/typescript/client.ts';

/** True when nothing of a run changes any more, unless a person resumes it. */
export const hasEnded = (status: RunDetails['status'] | null): boolean =>
  status === 'completed' || status === 'failed' || status === 'cancelled';
