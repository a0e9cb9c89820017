import { Context } from '@temporalio/activity';

/** Tells Temporal every few seconds that this activity lives, and hears of its cancellation in return. */
export async function whileHeartbeating<T>(work: (signal: AbortSignal) => Promise<T>): Promise<T> {
  const context = Context.current();
  const beat = setInterval(() => context.heartbeat(), 2_000);
  try {
    return await work(context.cancellationSignal);
  } finally {
    clearInterval(beat);
  }
}
