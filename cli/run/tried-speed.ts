import type { RunConfig } from '../../core/run-config/run-config.ts';
import type { TrialRecord } from '../show/trial-transcript.ts';

/** What a trial that was alone shows of its engine. */
export type TriedSpeed = {
  /** From its opening to its verdict. */
  seconds: number;
  /** Of its calls; null when none got a token. */
  sampled: Sampled | null;
};

/** The tokens of calls that did not overlap, and the seconds that the engine took for them, prompts included. */
export type Sampled = { tokens: number; seconds: number };

type Timed = Pick<TrialRecord['calls'][number], 'startedAt' | 'endedAt' | 'completion_tokens'>;

/** A shorter time is mostly that of the prompt, and of what an engine does at its first call. */
const TELLING_SECONDS = 10;

/** Returns what the engines sampled for these calls, also for those that were cut; null when that is nothing. */
export function sampledIn(calls: readonly Timed[]): Sampled | null {
  const sum = { tokens: 0, seconds: 0 };
  for (const { startedAt, endedAt, completion_tokens: tokens } of calls) {
    if (!tokens) continue;
    sum.tokens += tokens;
    sum.seconds += (endedAt.getTime() - startedAt.getTime()) / 1000;
  }
  return sum.tokens > 0 && sum.seconds > 0 ? sum : null;
}

/** Says how long the slowest of the tried trials took, and how fast the engines were for it. */
export function speedInWords(tried: readonly TriedSpeed[]): string {
  const [slowest] = tried.toSorted((one, other) => other.seconds - one.seconds);
  if (slowest === undefined) return 'no trial was tried';
  const { seconds, sampled } = slowest;
  const count = tried.length === 1 ? '1 trial tried' : `${tried.length} trials tried, the slowest`;
  return `${count} in ${Math.ceil(seconds)} s${sampled === null ? '' : `, ${rounded(sampled.tokens / sampled.seconds)} tokens/s`}`;
}

/** Warns when one reply of the longest allowed length would take more than half of a trial's time, though nothing else asks the engines. */
export function slowEngineWarning(tried: readonly TriedSpeed[], config: RunConfig): string | null {
  const speeds = tried.flatMap(({ sampled }) =>
    sampled !== null && sampled.seconds >= TELLING_SECONDS ? [sampled.tokens / sampled.seconds] : [],
  );
  if (speeds.length === 0) return null;
  const speed = Math.min(...speeds);
  const { max_response_length: tokens, deadlines } = config;
  const seconds = tokens / speed;
  if (seconds <= deadlines.trial / 2) return null;
  return (
    `WARNING: the engines make about ${rounded(speed)} tokens/s for one call alone, so a reply of max_response_length ${tokens} takes ${Math.round(seconds)} s, and a trial has ${deadlines.trial} s (deadlines.trial). ` +
    'Trials may end as timed_out: see what else uses this machine, or choose a smaller model, a smaller max_response_length or a longer deadline'
  );
}

const rounded = (value: number): string => (value < 10 ? value.toFixed(1) : value.toFixed(0));
