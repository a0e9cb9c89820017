import type { RunConfig } from '../../core/run-config/run-config.ts';
import type { TrialRecord } from '../show/trial-transcript.ts';

/** What a trial that was alone shows of its engine. */
export type TriedSpeed = {
  /** From its opening to its verdict. */
  seconds: number;
  /** The tokens a second of a call, its prompt's time included; null when no call was completed. */
  tokensPerSecond: number | null;
};

type Timed = Pick<TrialRecord['calls'][number], 'status' | 'startedAt' | 'endedAt' | 'completion_tokens'>;

/** Returns the tokens a second of these calls, and null when none was completed with a token. */
export function tokensPerSecond(calls: readonly Timed[]): number | null {
  let [tokens, seconds] = [0, 0];
  for (const { status, startedAt, endedAt, completion_tokens: made } of calls) {
    if (status !== 'completed' || endedAt === null || made === null) continue;
    tokens += made;
    seconds += (endedAt.getTime() - startedAt.getTime()) / 1000;
  }
  return tokens > 0 && seconds > 0 ? tokens / seconds : null;
}

/** Says how long the slowest of the tried trials took, and how fast the engines were for it. */
export function speedInWords(tried: readonly TriedSpeed[]): string {
  const [slowest] = tried.toSorted((one, other) => other.seconds - one.seconds);
  if (slowest === undefined) return 'no trial was tried';
  const { seconds, tokensPerSecond: speed } = slowest;
  const count = tried.length === 1 ? '1 trial tried' : `${tried.length} trials tried, the slowest`;
  return `${count} in ${Math.ceil(seconds)} s${speed === null ? '' : `, ${rounded(speed)} tokens/s`}`;
}

/** Warns when one reply of the longest allowed length would take more than half of a trial's time, though nothing else asks the engines. */
export function slowEngineWarning(tried: readonly TriedSpeed[], config: RunConfig): string | null {
  const speeds = tried.flatMap(({ tokensPerSecond: speed }) => speed ?? []);
  if (speeds.length === 0) return null;
  const speed = Math.min(...speeds);
  const { max_response_length: tokens, deadlines } = config;
  const seconds = tokens / speed;
  if (seconds <= deadlines.trial / 2) return null;
  return (
    `WARNING: the engines make ${rounded(speed)} tokens/s for one call alone, so a reply of max_response_length ${tokens} takes ${Math.round(seconds)} s, and a trial has ${deadlines.trial} s (deadlines.trial). ` +
    'Trials may end as timed_out: see what else uses this machine, or choose a smaller model, a smaller max_response_length or a longer deadline'
  );
}

const rounded = (value: number): string => (value < 10 ? value.toFixed(1) : value.toFixed(0));
