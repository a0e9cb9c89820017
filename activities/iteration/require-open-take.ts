import { ApplicationFailure } from '@temporalio/common';

/** Refuses a late writer of a superseded take; a retry would not help it (invariant 7). */
export function requireOpenTake<T extends { status: string }>(row: T | undefined, take: string): T {
  if (row?.status === 'open') return row;
  throw ApplicationFailure.create({
    type: 'take_superseded',
    message: `take ${take} is ${row?.status ?? 'unknown'}`,
    nonRetryable: true,
  });
}
