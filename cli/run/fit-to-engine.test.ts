import { expect, test } from 'vitest';
import { fit } from './fit-to-engine.ts';

const at = (factor: number) =>
  [
    { calls: 1, tokensPerSecond: 18 },
    { calls: 8, tokensPerSecond: 60 },
    { calls: 64, tokensPerSecond: 100 },
  ].map((one) => ({ ...one, tokensPerSecond: one.tokensPerSecond * factor }));
const need = { tokens: 128, seconds: 120 };

test('engines that serve all trials in time bound nothing, and nothing is said', () => {
  expect(fit(at(10), [need], { most: 64, chosen: null })).toEqual({ sentence: null, atOnce: null });
});

test('slow engines get as many trials at once as they serve in time, for the agent that needs most', () => {
  const { sentence, atOnce } = fit(at(1), [{ tokens: 12, seconds: 120 }, need], { most: 64, chosen: null });
  expect(atOnce).toBe(38);
  expect(sentence).toBe(
    'the engines make 100 tokens a second for 64 calls at once: at most 38 trials at once, so that each ends in time (128 tokens in 120 s). max_concurrent_trials in the run file sets another number',
  );
});

test('the run file’s own number of trials at once holds, with a warning where it is too large', () => {
  expect(fit(at(1), [need], { most: 64, chosen: 64 })).toMatchObject({
    atOnce: null,
    sentence: expect.stringContaining('WARNING'),
  });
  expect(fit(at(1), [need], { most: 64, chosen: 32 })).toEqual({ sentence: null, atOnce: null });
});

test('engines that are too slow for a trial alone end the start, with what to do', () => {
  expect(() => fit(at(0.05), [need], { most: 64, chosen: null })).toThrow(
    /make 5\.0 tokens a second .* a trial alone would take 142 s for 128 tokens, and its agent has 120 s.*--no-check/,
  );
});
