import { join } from 'node:path';
import { expect, test } from 'vitest';
import { temporaryHome, writeFiles } from '../tests/support/harness/sandbox-fixtures.ts';
import { meantPath } from './nearest-path.ts';

test('a path that is not there is followed by the file of settings with its name, else by a like name, never by itself', async () => {
  await using place = await temporaryHome();
  const at = (name: string) => join(place.home, 'runs', name);
  await writeFiles(place.home, { 'runs/mine.py': '', 'runs/mine.yaml': '', 'runs/alone/x': '' });
  expect(await meantPath(at('mine'))).toBe(`. Did you mean ${at('mine.yaml')}?`);
  expect(await meantPath(at('mime.yaml'))).toBe(`. Did you mean ${at('mine.yaml')}?`);
  expect(await meantPath(at('alone'))).toBe('');
});
