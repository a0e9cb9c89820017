import { randomUUID } from 'node:crypto';
import { z } from 'zod';
import { samplingOf } from '../../activities/trial/open-trial.ts';
import { attemptKey } from '../../core/keys.ts';
import type { RunConfig } from '../../core/run-config/run-config.ts';
import type { EngineSpeed } from '../../core/run-config/trials-at-once.ts';
import { TrialgateError } from '../../core/errors.ts';
import { openAttempt } from '../../store/queries/open-attempt.ts';
import { sealAttempt } from '../../store/queries/seal-attempt.ts';
import type { TryoutPlace } from './try-agent.ts';

/** The tokens of a measured reply, few because a slow engine makes a few of them a second. */
const TOKENS = 12;
const CALLS = [1, 8, 64];
/** A stage that would take longer, by the speed of the one before, is left out. */
const LONGEST_STAGE_SECONDS = 20;
const GIVES_UP_SECONDS = 60;
const PROMPT = 'Write the numbers from 1 to 1000 in words, each on a line of its own, and write nothing else.';

const reply = z.object({ usage: z.object({ completion_tokens: z.int().positive() }) });

/**
 * Measures the tokens a second that the engines make for 1, 8 and 64 calls at once, as far as this takes less than a minute. The calls are those of a trial
 * of its own outside any run, at most `most` at once.
 * @throws TrialgateError `engine_unavailable` when the engines make no dozen of tokens in a minute
 */
export async function measureEngine(
  most: number,
  config: RunConfig,
  { db, gatewayUrl, secret }: Pick<TryoutPlace, 'db' | 'gatewayUrl' | 'secret'>,
  signal: AbortSignal,
): Promise<EngineSpeed> {
  const key = { trialId: `try-${randomUUID().slice(0, 8)}`, attempt: 1 };
  await openAttempt(db, {
    ...key,
    task: 'measure the engines',
    agent: 'none',
    sampling: { ...samplingOf(config), max_tokens: TOKENS },
  });
  const limit = AbortSignal.timeout(GIVES_UP_SECONDS * 1000);
  const ask = async (): Promise<number> => {
    const response = await fetch(`${gatewayUrl}/v1/chat/completions`, {
      method: 'POST',
      headers: {
        authorization: `Bearer ${attemptKey(secret, key.trialId, key.attempt)}`,
        'content-type': 'application/json',
      },
      body: JSON.stringify({ model: 'policy', messages: [{ role: 'user', content: PROMPT }], max_tokens: TOKENS }),
      signal: AbortSignal.any([signal, limit]),
    });
    if (!response.ok)
      throw new TrialgateError('engine_unavailable', `the engines cannot be measured: ${await response.text()}`);
    return reply.parse(await response.json()).usage.completion_tokens;
  };
  const speed: { calls: number; tokensPerSecond: number }[] = [];
  try {
    for (const calls of new Set(CALLS.map((each) => Math.min(each, most)))) {
      const before = speed.at(-1)?.tokensPerSecond ?? Infinity;
      if ((calls * TOKENS) / before > LONGEST_STAGE_SECONDS) break;
      const start = performance.now();
      const tokens = await Promise.all(Array.from({ length: calls }, ask));
      speed.push({
        calls,
        tokensPerSecond: tokens.reduce((sum, one) => sum + one, 0) / ((performance.now() - start) / 1000),
      });
    }
  } catch (error) {
    signal.throwIfAborted();
    if (!limit.aborted) throw error;
    if (speed.length === 0)
      throw new TrialgateError(
        'engine_unavailable',
        `the engines made no ${TOKENS} tokens in ${GIVES_UP_SECONDS} s: look what else uses this machine`,
      );
  } finally {
    await sealAttempt(db, { ...key, outcome: 'cancelled', reason: 'it only measured the engines', final: true });
  }
  return speed;
}
