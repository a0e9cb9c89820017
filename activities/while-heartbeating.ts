import { Context } from '@temporalio/activity';

/** How many of this process tell. */
let telling = 0;

/**
 * In milliseconds: together they tell Temporal some 100 times a second, and each of them three times within the 20 s after which
 * it is given up. A thousand that told every two seconds kept Temporal from its other work.
 */
const pause = (): number => Math.min(Math.max(2_000, 10 * telling), 6_000);

/** Tells Temporal every few seconds that this activity lives, and hears of its cancellation in return. */
export async function whileHeartbeating<T>(work: (signal: AbortSignal) => Promise<T>): Promise<T> {
  const context = Context.current();
  const next = () => setTimeout(() => {
    context.heartbeat();
    timer = next();
  }, pause());
  telling += 1;
  let timer = next();
  try {
    return await work(context.cancellationSignal);
  } finally {
    clearTimeout(timer);
    telling -= 1;
  }
}
