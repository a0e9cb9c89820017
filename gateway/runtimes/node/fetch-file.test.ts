import { appendFileSync, existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { sha256Of } from '../../../tests/support/harness/checkpoints.ts';
import { fetchFile } from './fetch-file.ts';

let folder = '';
beforeEach(() => void (folder = mkdtempSync(join(tmpdir(), 'trialgate-fetched-'))));
afterEach(() => rmSync(folder, { recursive: true }));

const target = () => join(folder, 'file');

/** Fetches this content. `sent` are the pieces of each reply; it asks again after a reply that breaks off. */
const fetch = (content: string, ...sent: (() => Iterable<string>)[]) =>
  fetchFile({
    ...{ target: target(), bytes: content.length, sha256: sha256Of(content), signal: new AbortController().signal },
    read: async (from) => ({
      from,
      body: (async function* () {
        for (const piece of sent.shift()?.() ?? []) yield Buffer.from(piece);
      })(),
    }),
    again: async (work) => {
      while (sent.length > 1)
        try {
          return await work();
        } catch {
          continue;
        }
      return work();
    },
    onSize: () => {},
  });

test('a server that sends more than the file’s bytes is stopped, and no more of them are written', async () => {
  let asked = 0;
  const endless = function* () {
    for (;;) {
      asked += 1;
      yield 'pieces';
    }
  };
  await expect(fetch('a file of 21 bytes...', endless)).rejects.toThrow('sends more than its 21 bytes');
  expect([asked, readFileSync(`${target()}.part`, 'utf8')]).toEqual([4, 'pieces'.repeat(3)]);
});

test('what a failed write has left of its bytes does not count', async () => {
  const breaksOff = function* () {
    yield 'first half,';
    appendFileSync(`${target()}.part`, ' sec');
    throw new Error('EIO');
  };
  await fetch('first half, second half', breaksOff, () => [' second half']);
  expect(readFileSync(target(), 'utf8')).toBe('first half, second half');
});

test('a file whose content on the disk is not what was sent is not put into place', async () => {
  const disturbed = function* () {
    yield 'right, ';
    writeFileSync(`${target()}.part`, 'wrong, ');
    yield 'right';
  };
  await expect(fetch('right, right', disturbed)).rejects.toThrow('does not have its SHA-256');
  expect([existsSync(target()), existsSync(`${target()}.part`)]).toEqual([false, false]);
});
