import { toFailure } from '../failure.ts';
import type { StartLine, VerbReply } from './openapi/run-schemas.ts';

/** Proxies cut an answer that is silent for a minute. */
const BEAT_MS = 15_000;

type Options = {
  /** Gets a failure that no other place logs, or that nobody is told. */
  logged: (error: unknown) => void;
  beatMs?: number;
};

/**
 * Yields the lines of an answer while `ask` works, and an empty one where it is silent. A failure before the first line is thrown, so that
 * the answer has its status.
 */
export async function* startLines(
  ask: (report: (line: string) => void) => Promise<VerbReply>,
  { logged, beatMs = BEAT_MS }: Options,
): AsyncGenerator<StartLine, void, undefined> {
  const lines: StartLine[] = [];
  let more = Promise.withResolvers<void>();
  const add = (line: StartLine): void => {
    lines.push(line);
    more.resolve();
  };
  const beat = setInterval(() => add({}), beatMs);
  let isDone = false;
  const reply = ask((progress) => add({ progress }));
  reply
    .catch(() => {})
    .finally(() => {
      isDone = true;
      more.resolve();
    });
  let [hasBegun, isTold] = [false, false];
  try {
    for (;;) {
      await more.promise;
      more = Promise.withResolvers();
      for (const line of lines.splice(0)) {
        hasBegun = true;
        yield line;
      }
      if (isDone && lines.length === 0) break;
    }
    yield await reply;
    isTold = true;
  } catch (error) {
    const { status, code, message } = toFailure(error);
    isTold = !hasBegun || code === 'store_unavailable' || status >= 500;
    if (code === 'store_unavailable' || (hasBegun && status >= 500)) logged(error);
    if (!hasBegun) throw error;
    yield { error: { status, code, message } };
    isTold = true;
  } finally {
    clearInterval(beat);
    // The reader has left.
    if (!isTold) reply.catch(logged);
  }
}
