import { spawnSync } from 'node:child_process';
import { expect, test } from 'vitest';
import { REPOSITORY } from '../../core/repository.ts';

test('no tracked text file has a merge conflict marker', () => {
  const { status, stdout, stderr } = spawnSync('git', ['grep', '-InE', '^(<{7}|[|]{7}|>{7})( |$)'], {
    cwd: REPOSITORY,
    encoding: 'utf8',
  });
  // git ends with 1 if it finds nothing.
  expect([status, stdout, stderr]).toEqual([1, '', '']);
});
