import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { REPOSITORY } from '../../core/repository.ts';
import { readPytest, readVitest } from './reports.ts';
import { failedList, slowestTable, tiersTable } from './summary.ts';

const VITEST = {
  numPassedTests: 1,
  numFailedTests: 1,
  numPendingTests: 1,
  numTodoTests: 0,
  testResults: [
    {
      name: path.join(REPOSITORY, 'core/keys.test.ts'),
      status: 'failed',
      message: '',
      assertionResults: [
        { fullName: 'a key names its trial', duration: 2_500, status: 'passed', failureMessages: [] },
        { fullName: 'skipped', status: 'pending', failureMessages: [] },
        {
          fullName: 'a key ends',
          duration: 100,
          status: 'failed',
          failureMessages: ['\u001B[31mAssertionError\u001B[39m: 1 is not 2\nat here'],
        },
      ],
    },
    {
      name: path.join(REPOSITORY, 'core/ids.test.ts'),
      status: 'failed',
      message: 'SyntaxError: no such export',
      assertionResults: [],
    },
  ],
};
const PYTEST =
  '<testsuites><testsuite name="pytest" errors="0" failures="1" skipped="0" tests="2" time="9.1"><testcase classname="gpu-workers.trialgate_gpu.pack_test" name="test_packs" time="7.250"><failure message="assert 1 &lt; 0&#10;where 1 is">the traceback</failure></testcase><testcase classname="gpu-workers.trialgate_gpu.pack_test" name="test_order" time="0.01" /></testsuite></testsuites>';

function reportOf(text: string): string {
  const folder = mkdtempSync(path.join(tmpdir(), 'trialgate-report-'));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  const report = path.join(folder, 'report');
  writeFileSync(report, text);
  return report;
}

test('the slowest tests of vitest and pytest are listed together, the slowest first', () => {
  const [vitest, pytest] = [readVitest(reportOf(JSON.stringify(VITEST)), 1), readPytest(reportOf(PYTEST), 1)];
  expect([vitest.counts, pytest.counts]).toEqual([
    { passed: 1, failed: 1, skipped: 1 },
    { passed: 1, failed: 1, skipped: 0 },
  ]);
  const lines = slowestTable([...vitest.tests, ...pytest.tests])
    .split('\n')
    .map((line) => line.trim());
  expect(lines).toEqual([
    '7.3 s  gpu-workers/trialgate_gpu/pack_test.py: test_packs',
    '2.5 s  core/keys.test.ts: a key names its trial',
    '0.1 s  core/keys.test.ts: a key ends',
    '0.0 s  gpu-workers/trialgate_gpu/pack_test.py: test_order',
    '0.0 s  core/keys.test.ts: skipped',
    '0.0 s  core/ids.test.ts: the file',
  ]);
});

test('each test that failed is listed with its message, and so is a file that could not be loaded', () => {
  const { tests } = readVitest(reportOf(JSON.stringify(VITEST)), 1);
  expect(failedList([...tests, ...readPytest(reportOf(PYTEST), 1).tests])).toBe(
    [
      '  core/keys.test.ts: a key ends',
      '    AssertionError: 1 is not 2',
      '    at here',
      '  core/ids.test.ts: the file',
      '    SyntaxError: no such export',
      '  gpu-workers/trialgate_gpu/pack_test.py: test_packs',
      '    assert 1 < 0',
      '    where 1 is',
    ].join('\n'),
  );
  expect(failedList(tests.filter(({ failure }) => failure === undefined))).toBe('');
});

test.each([readVitest, readPytest])('a suite that ends without a report counts as one failure: %o', (read) => {
  expect(read('/there/is/no/report', 0)).toEqual({ counts: { passed: 0, failed: 1, skipped: 0 }, tests: [] });
});

test('the table has a row for each suite, and the tiers come in their order', () => {
  const row = { passed: 1, failed: 0, skipped: 0 };
  const table = tiersTable([
    { tier: 'real', suite: 'engines', counts: { ...row, skipped: 12 }, seconds: 386.4 },
    { tier: 'checks', suite: 'lint', counts: row, seconds: 3 },
  ]);
  expect(table).toBe(
    [
      'tier    suite    passed  failed  skipped  seconds',
      'checks  lint          1       0        0        3',
      'real    engines       1       0       12      386',
    ].join('\n'),
  );
});
