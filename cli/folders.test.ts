import { sep } from 'node:path';
import { expect, test } from 'vitest';
import { homeFolders, INSTALLS } from './folders.ts';

const { home: _home, ...kept } = homeFolders(INSTALLS.root);
const { venv, tools, loggerLibraries, models, stamps, vllmCache } = INSTALLS;

test.each(Object.entries({ venv, tools, loggerLibraries, models, stamps }))(
  'an install that replaces %s removes nothing that a deployment in the default folder keeps',
  (_, installed) => {
    const overlaps = Object.values(kept).filter((path) => isWithin(path, installed) || isWithin(installed, path));
    expect(overlaps).toEqual([]);
  },
);

test('an install that replaces the cache of vLLM removes nothing that a deployment in the default folder keeps', () => {
  expect(Object.values(kept).filter((path) => isWithin(path, vllmCache))).toEqual([]);
});

const isWithin = (path: string, folder: string): boolean => `${path}${sep}`.startsWith(`${folder}${sep}`);
