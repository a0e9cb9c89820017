import { expect, test } from 'vitest';
import { buildSamples, type TrainableCall } from './build-samples.ts';

const call = (
  id: string,
  prompt: number[],
  completion: number[],
  policyVersions: number | number[] = 0,
): TrainableCall => ({
  id,
  turn: id.charCodeAt(0) - 97,
  promptTokenIds: Int32Array.from(prompt),
  completionTokenIds: Int32Array.from(completion),
  logprobs: Float32Array.from(completion.map((token) => -token)),
  policyVersions,
  temperature: 1,
});
const plain = (calls: TrainableCall[]) =>
  buildSamples(calls).map(({ tokenIds, lossMask, callIds }) => ({
    ids: [...tokenIds],
    mask: [...lossMask],
    calls: callIds.join(''),
  }));

test('a turn that the next one repeats in its prompt is trained once, in one sample', () => {
  const [sample, ...rest] = buildSamples([call('a', [1, 2], [3, 4]), call('b', [1, 2, 3, 4, 9], [5], 1)]);
  expect(rest).toEqual([]);
  expect([...(sample?.tokenIds ?? [])]).toEqual([1, 2, 3, 4, 9, 5]);
  expect([...(sample?.lossMask ?? [])]).toEqual([0, 0, 1, 1, 0, 1]);
  expect([...(sample?.logprobs ?? [])]).toEqual([0, 0, -3, -4, 0, -5]);
  expect(sample?.policyVersions).toEqual([null, null, 0, 0, null, 1]);
  expect(sample?.turns).toEqual([null, null, 0, 0, null, 1]);
  expect(sample?.callIds).toEqual(['a', 'b']);
});

test('a prompt that drifted by one id begins a new sample', () => {
  expect(plain([call('a', [1, 2], [3, 4]), call('b', [1, 2, 3, 8, 9], [5])])).toEqual([
    { ids: [1, 2, 3, 4], mask: [0, 0, 1, 1], calls: 'a' },
    { ids: [1, 2, 3, 8, 9, 5], mask: [0, 0, 0, 0, 0, 1], calls: 'b' },
  ]);
});

test('a turn that two branches share is trained in one of them', () => {
  expect(plain([call('a', [1], [2]), call('b', [1, 2, 7], [3]), call('c', [1, 2, 8], [4])])).toEqual([
    { ids: [1, 2, 7, 3], mask: [0, 1, 0, 1], calls: 'ab' },
    { ids: [1, 2, 8, 4], mask: [0, 0, 0, 1], calls: 'ac' },
  ]);
});

test('interleaved conversations give one sample each', () => {
  const samples = plain([
    call('a', [1], [2]),
    call('x', [5], [6]),
    call('b', [1, 2, 7], [3]),
    call('y', [5, 6, 7], [8]),
  ]);
  expect(samples.map((sample) => sample.calls)).toEqual(['ab', 'xy']);
});

test('the same prompt sampled twice gives two samples', () => {
  expect(plain([call('a', [1], [2]), call('b', [1], [2])]).map(({ mask }) => mask)).toEqual([
    [0, 1],
    [0, 1],
  ]);
});

test('each token of a sample keeps the policy version that sampled it', () => {
  expect(buildSamples([call('a', [1], [2, 3, 4], [6, 6, 7])])[0]?.policyVersions).toEqual([null, 6, 6, 7]);
});
