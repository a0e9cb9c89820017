import { spawnSync } from 'node:child_process';
import { expect, test } from 'vitest';
import { REPOSITORY } from '../../core/repository.ts';
import { program } from '../main.ts';

const PRODUCT = ['activities', 'cli', 'core', 'gateway', 'gpu-workers/*.py', 'loggers', 'store', 'web', 'workflows'];
const COMMENT = /^\S+?:\d+:\s*(\/\/|\/?\*|#)/;

test('each command of ours that a message names begins with npx, because a fresh checkout puts no `trialgate` on the PATH', () => {
  const verbs = program().commands.map((verb) => verb.name());
  const pattern = String.raw`(?<!npx )\btrialgate (\$\{|(${verbs.join('|')})\b(?!-))`;
  const tests = ':!*.test.ts';
  const documents = ':!*.md';
  const { stdout, stderr } = spawnSync('git', ['grep', '-nP', pattern, '--', ...PRODUCT, tests, documents], {
    cwd: REPOSITORY,
    encoding: 'utf8',
  });
  expect(stderr).toBe('');
  const found = stdout.split('\n').filter((line) => line !== '' && !COMMENT.test(line));
  expect(found).toEqual([]);
});
