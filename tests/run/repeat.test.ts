import { existsSync, globSync } from 'node:fs';
import { expect, test } from 'vitest';
import { REPOSITORY } from '../../core/repository.ts';
import type { TestOutcome } from './outcome.ts';
import { chooseRepeats, MOST_FLAKY, NEVER_REPEATED, type FailedFile } from './repeat.ts';

const failed = (file: string, ...tests: Partial<TestOutcome>[]): FailedFile => ({
  suite: 'fast',
  file,
  tests: (tests.length ? tests : [{}]).map((each) => ({ file, name: 'a test', result: 'failed', seconds: 1, ...each })),
});

test('a file whose test failed is repeated', () => {
  const file = failed('core/keys.test.ts');
  expect(chooseRepeats([file])).toEqual({ repeat: [file], refused: [] });
});

test('what may be no accident is never repeated: exact tokens, durability, replay, isolation, security', () => {
  for (const file of [
    'gateway/conversations/exact-tokens.test.ts',
    'gateway/runtimes/node/killed.test.ts',
    'gateway/record/retry.test.ts',
    'tests/histories/replay.test.ts',
    'activities/sandbox/isolation.test.ts',
    'gateway/http/security/secrets.test.ts',
    'gpu-workers/trialgate_gpu/train_step_test.py',
  ]) {
    expect(existsSync(`${REPOSITORY}/${file}`), file).toBe(true);
    const { repeat, refused } = chooseRepeats([failed(file)]);
    expect([repeat, refused]).toEqual([[], [expect.stringContaining('never taken for an accident')]]);
  }
});

test('each part of a path in the list of what is never repeated is one of a file that exists', () => {
  const files = globSync('{core,gateway,store,activities,cli,tests,gpu-workers}/**/*{.test.ts,_test.py}', {
    cwd: REPOSITORY,
  });
  expect(NEVER_REPEATED.filter((part) => !files.some((file) => file.includes(part)))).toEqual([]);
});

test('a test that reached its limit, and a failure of no file, are not repeated', () => {
  expect(chooseRepeats([failed('core/keys.test.ts', { reachedLimit: true })]).repeat).toEqual([]);
  expect(chooseRepeats([failed('')]).repeat).toEqual([]);
  expect(chooseRepeats([failed('checks')]).repeat).toEqual([]);
});

test(`when more than ${MOST_FLAKY} tests failed, none is repeated`, () => {
  const many = Array.from({ length: MOST_FLAKY + 1 }, (_, i) => failed(`core/file-${i}.test.ts`));
  expect(chooseRepeats(many)).toEqual({ repeat: [], refused: [expect.stringContaining('4 tests failed')] });
});
