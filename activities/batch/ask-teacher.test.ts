import { afterEach, beforeEach, expect, test } from 'vitest';
import { ScriptedTeacher } from '../../tests/support/fakes/scripted-teacher.ts';
import { askTeacher } from './ask-teacher.ts';

let teacher: ScriptedTeacher;
beforeEach(async () => void (teacher = await new ScriptedTeacher().start()));
afterEach(() => teacher.stop());

const sampled = (ids: number[], mask: number[], masks: (readonly number[] | null)[] = ids.map(() => null)) => ({
  tokenIds: Int32Array.from(ids),
  lossMask: Int8Array.from(mask),
  samplingMask: masks,
});
const ask = (samples: ReturnType<typeof sampled>[]) =>
  askTeacher({ url: `${teacher.url}/v1/`, model: 'big' }, samples, new AbortController().signal);

test('a teacher gets each sample’s token ids up to the last sampled one, and each of its log-probabilities stands at its sampled token', async () => {
  const many = Array.from({ length: 40 }, (_, i) => sampled([i, 100 + i, 7], [0, 1, 0]));
  const answers = await ask([sampled([5, 6, 7, 8, 9], [0, 1, 0, 1, 0]), ...many]);
  expect(answers[0]).toEqual([null, -0.7, null, -0.9, null]);
  expect(answers.slice(1)).toEqual(many.map((_, i) => [null, -(101 + i) / 10, null]));
  expect(teacher.asked[0]).toEqual({
    model: 'big',
    prompt: [5, 6, 7, 8],
    max_tokens: 1,
    temperature: 1,
    prompt_logprobs: 0,
  });
});

test('a token that was sampled under a sampling mask gets no teacher log-probability, because the teacher normalizes over all ids', async () => {
  expect(await ask([sampled([5, 6, 7], [0, 1, 1], [null, [6, 8], null])])).toEqual([[null, null, -0.8]]);
});

test('when a teacher cannot be reached, is busy or fails, the batch’s activity fails with an error that Temporal retries', async () => {
  for (const status of [408, 429, 500, 503]) {
    teacher.status = status;
    const error: unknown = await ask([sampled([1, 2], [0, 1])]).catch((caught: unknown) => caught);
    expect(error).not.toHaveProperty('nonRetryable', true);
    expect(error).toMatchObject({ message: expect.stringContaining(`answered ${status}`) });
  }
  await teacher.stop();
  const error: unknown = await ask([sampled([1, 2], [0, 1])]).catch((caught: unknown) => caught);
  expect(error).not.toHaveProperty('nonRetryable', true);
  expect(error).toMatchObject({ message: expect.stringContaining('cannot be reached') });
});

test.each([
  ['that refuses the request', { status: 404 }, 'answered 404: "no such model"'],
  [
    'that has no prompt_logprobs',
    { body: JSON.stringify({ choices: [{ text: '' }] }) },
    'does not answer `prompt_logprobs`',
  ],
  [
    'that answers for other tokens',
    { body: JSON.stringify({ choices: [{ prompt_logprobs: [null, { 3: { logprob: -1 } }] }] }) },
    'does not answer `prompt_logprobs`',
  ],
  ['that writes no JSON', { body: 'NaN' }, 'does not answer `prompt_logprobs`'],
])(
  'a teacher %s fails the batch with an error that names the reason and is not retried',
  async (_, change, message) => {
    Object.assign(teacher, change);
    await expect(ask([sampled([1, 2], [0, 1])])).rejects.toMatchObject({
      type: 'teacher_refused',
      nonRetryable: true,
      message: expect.stringContaining(message),
    });
  },
);
