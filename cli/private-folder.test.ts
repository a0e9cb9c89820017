import { chmodSync, mkdirSync, mkdtempSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, test } from 'vitest';
import { makePrivate } from './private-folder.ts';

const folder = mkdtempSync(join(tmpdir(), 'trialgate-private-'));
afterAll(() => rmSync(folder, { recursive: true }));

const modeOf = (path: string): string => (statSync(path).mode & 0o777).toString(8);

function openFolder(name: string, file?: string): string {
  const path = join(folder, name);
  mkdirSync(path);
  chmodSync(path, 0o755);
  if (file) writeFileSync(join(path, file), '');
  return path;
}

test('a deployment’s folder is closed to other users when it is new, empty or of an older release', () => {
  for (const path of [join(folder, 'deep/new'), openFolder('empty'), openFolder('older', 'secrets.json')]) {
    makePrivate(path);
    expect(modeOf(path)).toBe('700');
  }
});

test('a folder given as a deployment’s keeps its permissions when it holds something else', () => {
  const path = openFolder('shared', 'thesis.tex');
  makePrivate(path);
  expect(modeOf(path)).toBe('755');
});
