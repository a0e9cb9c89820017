import { existsSync, lstatSync, mkdirSync, readdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { temporaryHome } from '../../tests/support/harness/sandbox-fixtures.ts';
import { makeRealFolder, writeInside } from './write-inside.ts';

test.each(['secret', 'new'])('a file takes the place of a link to %s, which stays as it is', async (target) => {
  await using place = await temporaryHome();
  const work = join(place.home, 'work');
  writeFileSync(join(place.home, 'secret'), 'secret');
  mkdirSync(work);
  symlinkSync(`../${target}`, join(work, 'instruction.md'));
  const path = await writeInside(work, 'instruction.md', 'Do it.');
  expect(lstatSync(path).isFile()).toBe(true);
  expect(readFileSync(path, 'utf8')).toBe('Do it.');
  expect(readFileSync(join(place.home, 'secret'), 'utf8')).toBe('secret');
  expect(existsSync(join(place.home, 'new'))).toBe(false);
});

test('nothing is written into a folder that is a link', async () => {
  await using place = await temporaryHome();
  mkdirSync(join(place.home, 'other'));
  symlinkSync('other', join(place.home, 'work'));
  await expect(writeInside(join(place.home, 'work'), 'a', 'text')).rejects.toMatchObject({ code: 'bad_input' });
  expect(readdirSync(join(place.home, 'other'))).toEqual([]);
});

test.each(['link', 'link/b', 'a/link', 'a/file/b', 'u1', 'u1/x'])(
  'a folder is not made at %s, whose parts are not all folders',
  async (path) => {
    await using place = await temporaryHome();
    const work = join(place.home, 'work');
    mkdirSync(join(work, 'a'), { recursive: true });
    writeFileSync(join(work, 'a/file'), '');
    symlinkSync(place.home, join(work, 'link'));
    symlinkSync(place.home, join(work, 'a/link'));
    // No link of this chain leads out of the folder by its text alone.
    symlinkSync('.', join(work, 'u0'));
    symlinkSync('u0/..', join(work, 'u1'));
    await expect(makeRealFolder(work, path)).rejects.toThrow('where a folder must be');
    expect(readdirSync(place.home)).toEqual(['work']);
  },
);

test('a folder is made below folders that exist', async () => {
  await using place = await temporaryHome();
  mkdirSync(join(place.home, 'a'));
  expect(await makeRealFolder(place.home, 'a/b/c')).toBe(join(place.home, 'a/b/c'));
  expect(lstatSync(join(place.home, 'a/b/c')).isDirectory()).toBe(true);
});
