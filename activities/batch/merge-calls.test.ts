import { expect, test } from 'vitest';
import { mergeCalls } from './merge-calls.ts';
import type { TrainableCall } from './sample.ts';

const call = (id: string, prompt: number[], completion: number[], policyVersion = 0): TrainableCall => ({
  id,
  promptTokenIds: Int32Array.from(prompt),
  completionTokenIds: Int32Array.from(completion),
  logprobs: Float32Array.from(completion.map((token) => -token)),
  policyVersion,
  temperature: 1,
});

test('a turn is trained twice because the next one repeats it in its prompt', () => {
  const [sample, ...rest] = mergeCalls([call('a', [1, 2], [3, 4]), call('b', [1, 2, 3, 4, 9], [5], 1)]);
  expect(rest).toEqual([]);
  expect([...(sample?.tokenIds ?? [])]).toEqual([1, 2, 3, 4, 9, 5]);
  expect([...(sample?.lossMask ?? [])]).toEqual([0, 0, 1, 1, 0, 1]);
  expect([...(sample?.logprobs ?? [])]).toEqual([0, 0, -3, -4, 0, -5]);
  expect(sample?.policyVersions).toEqual([null, null, 0, 0, null, 1]);
  expect(sample?.callIds).toEqual(['a', 'b']);
});

test('a prompt that drifted by one id is glued onto what it does not continue', () => {
  const samples = mergeCalls([call('a', [1, 2], [3, 4]), call('b', [1, 2, 3, 8, 9], [5])]);
  expect(samples.map((sample) => [...sample.tokenIds])).toEqual([[1, 2, 3, 4], [1, 2, 3, 8, 9, 5]]);
  expect([...(samples[1]?.lossMask ?? [])]).toEqual([0, 0, 0, 0, 0, 1]);
});
