import { eq } from 'drizzle-orm';
import { TrialgateError } from '../../core/errors.ts';
import type { RunConfig } from '../../core/run-config/run-config.ts';
import {
  secondsOfTrial,
  trialsAtOnce,
  type EngineSpeed,
  type TrialNeed,
} from '../../core/run-config/trials-at-once.ts';
import { trials } from '../../store/schema.ts';
import { findTask, type TryoutPlace } from './try-agent.ts';

/** Returns what a trial like this one needs. Replies differ, and get longer in training, so it counts twice the tokens of this one. */
export async function needOf(
  id: string,
  named: string,
  config: RunConfig,
  { db, home }: TryoutPlace,
): Promise<TrialNeed> {
  const [row] = await db
    .select({ calls: trials.usedCalls, tokens: trials.usedTokens })
    .from(trials)
    .where(eq(trials.id, id));
  const { calls: made, tokens } = row ?? { calls: 1, tokens: 0 };
  const longest = config.max_response_length;
  const { agent } = await findTask(named, config, home);
  return {
    tokens: Math.min(Math.max(2 * tokens, longest), Math.max(1, made) * longest),
    seconds: Math.min(agent.timeoutSec, config.deadlines.trial),
  };
}

/**
 * Returns the most trials at once, null where the engines serve as many as the host has sandboxes (`most`), and a sentence about it.
 * @throws TrialgateError `engine_unavailable` when a trial alone would use up its time
 */
export function fit(
  speed: EngineSpeed,
  needs: readonly TrialNeed[],
  { most, chosen }: { most: number; chosen: number | null },
): { sentence: string | null; atOnce: number | null } {
  const fits = needs.map((need) => ({ need, atOnce: trialsAtOnce(speed, need, most) }));
  const [tightest] = fits.toSorted((one, other) => one.atOnce - other.atOnce);
  const last = speed.at(-1);
  if (!tightest || !last) return { sentence: null, atOnce: null };
  const { need, atOnce } = tightest;
  const made = `the engines make ${rounded(last.tokensPerSecond)} tokens a second for ${last.calls === 1 ? 'a call alone' : `${last.calls} calls at once`}`;
  const alone = secondsOfTrial(speed, 1, need);
  if (alone > need.seconds)
    throw new TrialgateError(
      'engine_unavailable',
      `${made}: a trial alone would take ${Math.round(alone)} s for ${need.tokens} tokens, and its agent has ${need.seconds} s. Look what else uses this machine, or choose a smaller model, a smaller max_response_length or a longer limit; --no-check starts the run all the same`,
    );
  if (atOnce === most) return { sentence: null, atOnce: null };
  const few = `at most ${atOnce} trial${atOnce === 1 ? '' : 's'} at once, so that each ends in time (${need.tokens} tokens in ${need.seconds} s)`;
  if (chosen !== null)
    return {
      sentence:
        chosen > atOnce
          ? `WARNING: ${made}, enough for ${few}; the run file says max_concurrent_trials: ${chosen}`
          : null,
      atOnce: null,
    };
  return { sentence: `${made}: ${few}. max_concurrent_trials in the run file sets another number`, atOnce };
}

const rounded = (value: number): string => (value < 10 ? value.toFixed(1) : value.toFixed(0));
