import { execFileSync } from 'node:child_process';
import { mkdirSync, symlinkSync } from 'node:fs';
import { readFile, rm, utimes } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { temporaryHome, writeFiles } from '../../tests/support/harness/sandbox-fixtures.ts';
import { copyChanges } from './copy-changes.ts';

const limits = { bytes: 100, entries: 5 };

const options = () => ({ repository: '.', signal: AbortSignal.timeout(60_000) });

/** Makes a folder with 20 files, twice, as they are before an agent works in the first. */
async function twice(home: string): Promise<{ from: string; to: string; copy: () => ReturnType<typeof copyChanges> }> {
  const [from, to] = [join(home, 'from'), join(home, 'to')];
  const files = Array.from({ length: 20 }, (_, index) => [`d${index % 3}/f${index}`, 'x'.repeat(20)]);
  await writeFiles(from, Object.fromEntries(files));
  mkdirSync(join(from, '.git'));
  // Node's own copy does not keep a time's last digits.
  execFileSync('cp', ['-a', from, to]);
  return {
    from,
    to,
    copy: () => copyChanges(from, to, limits, options()),
  };
}

test('files that did not change count neither for the limits nor as copied', async () => {
  await using folder = await temporaryHome();
  const { from, copy } = await twice(folder.home);
  await writeFiles(from, { 'd0/f0': 'new' });
  await rm(join(from, 'd1/f1'));
  expect(await copy()).toEqual({ bytes: 3, entries: 2, skipped: [] });
});

test.each([
  ['bytes', { big: 'x'.repeat(101) }],
  ['new files', { a: '', b: '', c: '', d: '', e: '', f: '' }],
])('work with too many changed %s is refused', async (_, files) => {
  await using folder = await temporaryHome();
  const { from, copy } = await twice(folder.home);
  await writeFiles(from, files);
  await expect(copy()).rejects.toThrow(/more than 100 bytes or 5 files and folders were changed/);
});

test('a file whose time and size an agent sets back is as it was', async () => {
  await using folder = await temporaryHome();
  const { from, to, copy } = await twice(folder.home);
  const before = new Date(1_000_000_000_000);
  for (const place of [from, to]) await utimes(join(place, 'd0/f0'), before, before);
  await writeFiles(from, { 'd0/f0': 'y'.repeat(20) });
  await utimes(join(from, 'd0/f0'), before, before);
  await copy();
  expect(await readFile(join(to, 'd0/f0'), 'utf8')).toBe('x'.repeat(20));
});

test('a link in the place of a file or folder is not copied, and what it replaced is gone', async () => {
  await using folder = await temporaryHome();
  const { from, to, copy } = await twice(folder.home);
  await rm(join(from, 'd0/f0'));
  symlinkSync('/etc/passwd', join(from, 'd0/f0'));
  symlinkSync('/etc', join(from, 'new'));
  expect((await copy()).skipped.toSorted()).toEqual(['d0/f0', 'new']);
  await expect(readFile(join(to, 'd0/f0'))).rejects.toThrow('ENOENT');
});

test('a folder in the place of a link of the repository is written into the copy and not where the link leads', async () => {
  await using folder = await temporaryHome();
  const { from, to, copy } = await twice(folder.home);
  const outside = join(folder.home, 'outside');
  mkdirSync(outside);
  symlinkSync(outside, join(to, 'link'));
  await writeFiles(from, { 'link/file': 'mine' });
  await copy();
  expect(await readFile(join(to, 'link/file'), 'utf8')).toBe('mine');
  await expect(readFile(join(outside, 'file'))).rejects.toThrow('ENOENT');
});

test('what lies too deep for the longer path of the copy is skipped and not entered', async () => {
  await using folder = await temporaryHome();
  const from = join(folder.home, 'f');
  const to = join(folder.home, 'to'.repeat(100));
  mkdirSync(from);
  mkdirSync(to);
  // A path within the limit of the first folder, but not of the second.
  const names = Array.from({ length: 16 }, (_, index) => `${index}`.padEnd(245, 'x'));
  mkdirSync(join(from, ...names), { recursive: true });
  await writeFiles(from, { [join(...names, 'file')]: 'x' });
  const { skipped } = await copyChanges(from, to, { bytes: 1000, entries: 1000 }, options());
  expect(skipped).toEqual([join(...names)]);
});
