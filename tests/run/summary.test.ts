import { expect, test } from 'vitest';
import type { TestOutcome } from './outcome.ts';
import { countsLine, report, slowestTable, suiteTable, type SuiteResult } from './summary.ts';

const outcome = (name: string, seconds: number, failure?: string): TestOutcome => ({
  file: 'core/keys.test.ts',
  name,
  result: failure === undefined ? 'passed' : 'failed',
  seconds,
  ...(failure !== undefined && { failure }),
});
const suite = (tests: TestOutcome[], more: Partial<SuiteResult> = {}): SuiteResult => ({
  area: 'fast',
  suite: 'fast',
  tests,
  seconds: 3,
  ...more,
});

test('the slowest tests are listed, the slowest first', () => {
  const lines = slowestTable([outcome('a key ends', 0.1), outcome('a key names its trial', 7.25)]).split('\n');
  expect(lines.map((line) => line.trim())).toEqual([
    '7.3 s  core/keys.test.ts: a key names its trial',
    '0.1 s  core/keys.test.ts: a key ends',
  ]);
});

test('each test that failed is listed with its whole message, and a very long one with what was left out', () => {
  const long = Array.from({ length: 100 }, (_, i) => `line ${i}`).join('\n');
  const { text, isGood } = report({
    results: [
      suite([
        outcome('a key ends', 1, '\u001B[31mAssertionError\u001B[39m: 1 is not 2\nat here'),
        outcome('b', 1, long),
      ]),
    ],
    flaky: [],
    refused: ['core/keys.test.ts was not repeated: why'],
    left: [],
  });
  expect(text).toContain('  core/keys.test.ts: a key ends\n    AssertionError: 1 is not 2\n    at here\n');
  expect(text).toContain('    line 79\n    … 20 more lines');
  expect(text).toContain('was not repeated: why');
  expect(isGood).toBe(false);
});

test('a run of which no test passed fails, and so does one with more than three flaky tests', () => {
  const flaky = Array.from({ length: 4 }, (_, i) => ({ file: 'a.test.ts', name: `test ${i}`, failure: 'first' }));
  const good = { results: [suite([outcome('a', 1)])], refused: [], left: [] };
  expect(report({ ...good, results: [], flaky: [] }).isGood).toBe(false);
  expect(report({ ...good, flaky: flaky.slice(1) }).isGood).toBe(true);
  expect(report({ ...good, flaky })).toMatchObject({ isGood: false, text: expect.stringContaining('4 FLAKY') });
});

test('the table has a row for each suite, and the areas come in their order', () => {
  const table = suiteTable([
    suite([outcome('a', 1), { ...outcome('b', 1), result: 'skipped' }], {
      area: 'trainer',
      suite: 'engines',
      seconds: 386.4,
    }),
    suite([outcome('lint', 3)], { area: 'checks', suite: 'lint' }),
  ]);
  expect(table).toBe(
    [
      'area     suite    passed  failed  skipped  seconds',
      'checks   lint          1       0        0        3',
      'trainer  engines       1       0        1      386',
    ].join('\n'),
  );
});

test('the last line counts what passed, failed and was skipped', () => {
  expect(countsLine({ passed: 3, failed: 0, skipped: 0 })).toBe('3 passed, 0 failed');
  expect(countsLine({ passed: 3, failed: 1, skipped: 2 })).toBe('3 passed, 1 failed, 2 skipped');
});
