import { Context } from '@temporalio/activity';

/** The number of activities of this process that send heartbeats. */
let heartbeating = 0;

/**
 * Returns the milliseconds between two heartbeats of an activity. All activities together send Temporal some 100 heartbeats a second, and
 * each sends three within the 20 s after which Temporal gives it up. A thousand activities with a heartbeat every two seconds kept
 * Temporal from its other work.
 */
const pause = (): number => Math.min(Math.max(2_000, 10 * heartbeating), 6_000);

/**
 * Sends Temporal a heartbeat every few seconds while `work` runs, and aborts the signal when the activity is cancelled. What `work` says is
 * sent with the next heartbeat, for those who ask what the activity does.
 */
export async function whileHeartbeating<T>(
  work: (signal: AbortSignal, say: (doing: string) => void) => Promise<T>,
): Promise<T> {
  const context = Context.current();
  let doing: string | undefined;
  const next = () =>
    setTimeout(() => {
      context.heartbeat(doing);
      timer = next();
    }, pause());
  heartbeating += 1;
  let timer = next();
  try {
    return await work(context.cancellationSignal, (now) => void (doing = now));
  } finally {
    clearTimeout(timer);
    heartbeating -= 1;
  }
}
