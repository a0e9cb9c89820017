import { expect, test } from 'vitest';
import { runConfig } from '../../core/run-config/run-config.ts';
import { sampledIn, slowEngineWarning, speedInWords } from './tried-speed.ts';

const config = runConfig.parse({ model: 'm', tasks: ['t'], iterations: 1, max_response_length: 512 });
const call = (seconds: number, tokens: number | null) => ({
  startedAt: new Date(0),
  endedAt: new Date(seconds * 1000),
  completion_tokens: tokens,
});
const tried = (tokens: number, seconds: number) => ({ seconds, sampled: { tokens, seconds } });

test('the speed of a tried trial is that of all its calls with tokens, also of those that were cut', () => {
  expect(sampledIn([call(2, 10), call(5, null), call(3, 0), call(4, 5)])).toEqual({ tokens: 15, seconds: 6 });
  expect(sampledIn([call(5, null), call(3, 0)])).toBeNull();
  expect(speedInWords([tried(15, 6), { seconds: 8.2, sampled: null }])).toBe('2 trials tried, the slowest in 9 s');
  expect(speedInWords([tried(15, 6)])).toBe('1 trial tried in 6 s, 2.5 tokens/s');
});

test('a warning says when one reply alone would take most of a trial’s time, and a short reply shows no speed', () => {
  expect(slowEngineWarning([tried(400, 4), tried(15, 12)], config)).toMatch(
    /^WARNING: the engines make about 1\.3 tokens\/s for one call alone, so a reply of max_response_length 512 takes 410 s, and a trial has 600 s/,
  );
  for (const fast of [tried(2, 1.5), tried(30, 12)]) expect(slowEngineWarning([fast], config)).toBeNull();
});
