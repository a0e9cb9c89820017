import { expect, test } from 'vitest';
import { ReadGate } from './read-gate.ts';

test('a few readers pass at a time, a few wait for their turn, and one more is refused with what to do', async () => {
  const gate = new ReadGate({ reading: 1, waiting: 1 });
  const first = Promise.withResolvers<string>();
  const passed = gate.pass(() => first.promise);
  const waited = gate.pass(async () => 'second');
  await expect(gate.pass(async () => 'third')).rejects.toMatchObject({
    status: 503,
    code: 'too_many_readers',
    message: expect.stringContaining('try again'),
  });
  first.resolve('first');
  expect(await Promise.all([passed, waited])).toEqual(['first', 'second']);
  await expect(gate.pass(() => Promise.reject(new Error('lost')))).rejects.toThrow('lost');
  expect(await gate.pass(async () => 'fourth')).toBe('fourth');
});
