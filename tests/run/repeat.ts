import type { TestOutcome } from './outcome.ts';

/** More tests than these that fail are no accident: none is repeated. */
export const MOST_FLAKY = 3;

/**
 * A failure of these is never repeated, because one in a hundred is what they look for: exact tokens, durability, replay, isolation,
 * security. Each is a part of a path.
 */
export const NEVER_REPEATED = [
  'exact-tokens',
  'gateway/engines/vllm/tokens',
  'gateway/record/',
  'gateway/conversations/',
  'gateway/runtimes/node/killed',
  'gateway/http/security/',
  'gateway/http/auth',
  'store/fence',
  'store/claim-reply',
  'store/reserve-call',
  'store/samples/',
  'activities/batch/',
  'activities/sandbox/isolation',
  'activities/sandbox/network',
  'activities/sandbox/egress/',
  'tests/e2e/guarantees',
  'tests/e2e/train-step-faults',
  'tests/histories/',
  'trialgate_gpu/train_step_test',
  'trialgate_gpu/reference_test',
] as const;

/** A file of a suite whose tests failed. */
export type FailedFile = { suite: string; file: string; tests: TestOutcome[] };

/**
 * Returns the files that are run once more, alone, and why the others are not.
 * A test that reached its limit is not repeated: a hang is a fault, and would hang again.
 */
export function chooseRepeats(failed: readonly FailedFile[]): { repeat: FailedFile[]; refused: string[] } {
  const tests = failed.reduce((sum, each) => sum + each.tests.length, 0);
  if (tests > MOST_FLAKY)
    return {
      repeat: [],
      refused: [`${tests} tests failed. More than ${MOST_FLAKY} are no accident, so none was repeated`],
    };
  const repeat: FailedFile[] = [];
  const refused: string[] = [];
  for (const each of failed) {
    const why = whyNot(each);
    if (why) refused.push(`${each.file || each.suite} was not repeated: ${why}`);
    else repeat.push(each);
  }
  return { repeat, refused };
}

function whyNot({ file, tests }: FailedFile): string | undefined {
  if (file === '' || file === 'checks') return 'the failure belongs to no file';
  if (tests.some(({ reachedLimit }) => reachedLimit)) return 'a test reached its limit of time';
  const guarded = NEVER_REPEATED.find((part) => file.includes(part));
  return guarded && `a failure of ${guarded} is never taken for an accident (tests/run/repeat.ts)`;
}
