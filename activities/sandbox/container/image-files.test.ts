import { execFileSync, spawn } from 'node:child_process';
import { mkdirSync, readdirSync, readlinkSync, symlinkSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { temporaryHome, writeFiles } from '../../../tests/support/harness/sandbox-fixtures.ts';
import { unpack } from './image-files.ts';

const never = new AbortController().signal;
const image = { name: 'example:1', workdir: '/srv/work' };

/** Archives the folder `work`, as an engine archives a work folder. */
const archiveOf = (home: string) => spawn('tar', ['-cf', '-', 'work'], { cwd: home }).stdout;

async function unpacked(home: string, most?: { bytes: number; entries: number }, signal = never): Promise<string> {
  const to = join(home, 'to');
  mkdirSync(to);
  await unpack(archiveOf(home), to, image, signal, most);
  return to;
}

test('links of an image are copied as they are, and special files are left out', async () => {
  await using folder = await temporaryHome();
  const work = join(folder.home, 'work');
  await writeFiles(work, { 'sub/file': 'text' });
  const links = { absolute: '/usr/bin/python3', outside: '../../etc/passwd', loop: 'loop', u0: '.', u1: 'u0/..' };
  for (const [name, target] of Object.entries(links)) symlinkSync(target, join(work, name));
  execFileSync('ln', ['sub/file', 'hard'], { cwd: work });
  execFileSync('mkfifo', [join(work, 'pipe')]);
  const to = await unpacked(folder.home);
  expect(readdirSync(to).toSorted()).toEqual([...Object.keys(links), 'hard', 'sub'].toSorted());
  for (const [name, target] of Object.entries(links)) expect(readlinkSync(join(to, name))).toBe(target);
  for (const name of ['hard', 'sub/file']) expect(await readFile(join(to, name), 'utf8')).toBe('text');
});

test.each([
  ['bytes', { bytes: 99, entries: 10 }],
  ['files', { bytes: 100, entries: 2 }],
])('an image with too many %s is refused by its name', async (_, most) => {
  await using folder = await temporaryHome();
  await writeFiles(join(folder.home, 'work'), { a: 'x'.repeat(50), b: 'x'.repeat(50) });
  await expect(unpacked(folder.home, most)).rejects.toMatchObject({
    code: 'bad_input',
    message: expect.stringContaining('the image example:1: its WORKDIR /srv/work has more than'),
  });
});

test('an image whose work folder is a link is refused', async () => {
  await using folder = await temporaryHome();
  symlinkSync('/etc', join(folder.home, 'work'));
  await expect(unpacked(folder.home)).rejects.toThrow('its WORKDIR /srv/work is a link or a file');
});

test('the copy of an image’s files ends when its caller’s signal aborts', async () => {
  await using folder = await temporaryHome();
  await writeFiles(join(folder.home, 'work'), { a: 'a' });
  const stop = new AbortController();
  stop.abort(new Error('cancelled'));
  await expect(unpacked(folder.home, undefined, stop.signal)).rejects.toThrow('cancelled');
});
