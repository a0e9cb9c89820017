import { Readable, Writable } from 'node:stream';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { passOn } from './pass-on.ts';

const parts = (count: number) => Array.from({ length: count }, (_, i) => Buffer.from(`${i} `));

/** Returns a stream whose parts are all there, and one that keeps the parts that it is given. */
function streams(count: number) {
  const from = new Readable({ read() {} });
  for (const part of parts(count)) from.push(part);
  from.push(null);
  const taken: Buffer[] = [];
  const to = new Writable({
    highWaterMark: 8,
    write: (part: Buffer, _encoding, done) => {
      taken.push(part);
      setImmediate(done);
    },
  });
  return { from, to, taken };
}

test('a stream is forwarded completely, in small parts, and other work of the process runs between two parts', async () => {
  const { from, to, taken } = streams(100);
  passOn(from, to);
  for (let before = 0; !to.writableFinished; before = taken.length) {
    await nextTurn();
    expect(taken.length - before).toBeLessThan(5);
  }
  expect(Buffer.concat(taken).equals(Buffer.concat(parts(100)))).toBe(true);
});

test('passOn stops reading when it is stopped', async () => {
  const { from, to, taken } = streams(100);
  const stop = passOn(from, to);
  while (taken.length < 3) await nextTurn();
  stop();
  for (let turn = 0; turn < 20; turn++) await nextTurn();
  expect(taken.length).toBeLessThan(8);
  expect(from.readableLength).toBeGreaterThan(0);
  expect(to.writableEnded).toBe(false);
});
