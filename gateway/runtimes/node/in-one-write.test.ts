import { Writable } from 'node:stream';
import { setImmediate } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { inOneWrite } from './in-one-write.ts';

test('messages of one turn go out in one write, in order, and those of the next turn in another', async () => {
  const writes: string[][] = [];
  const stream = new Writable({
    writev: (chunks, done) => {
      writes.push(chunks.map(({ chunk }) => String(chunk)));
      done();
    },
  });
  const send = inOneWrite(stream, (message: string) => void stream.write(message));
  ['a', 'b', 'c'].forEach(send);
  expect(writes).toEqual([]);
  await setImmediate();
  send('d');
  await setImmediate();
  expect(writes).toEqual([['a', 'b', 'c'], ['d']]);
});
