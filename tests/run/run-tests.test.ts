import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { expect, onTestFinished, test, vi } from 'vitest';
import { INSTALLS } from '../../cli/folders.ts';
import { REPOSITORY } from '../../core/repository.ts';
import { currentTest } from '../support/harness/current-test.ts';
import { identify, isAlive } from '../../cli/supervisor/processes.ts';
import { countsOf } from './outcome.ts';
import { runSuite } from './run-suite.ts';
import { TestRun } from './run-tests.ts';
import { report } from './summary.ts';
import type { Suite } from './suites.ts';

const config = path.join(import.meta.dirname, 'fixtures/vitest.config.ts');
const fixtures = (...names: string[]): Suite => ({
  name: 'fixtures',
  area: 'fast',
  kind: 'vitest',
  project: 'fixtures',
  config,
  workers: 1,
  files: names.map((name) => `fixtures/${name}.fixture.ts`),
});

function temporaryFolder(): string {
  const folder = mkdtempSync(path.join(tmpdir(), 'tg-'));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

/** Runs these files as `npm test` runs its suites, and once more what failed. Returns what was printed, and the report. */
async function runFixtures(names: string[]) {
  const folder = temporaryFolder();
  const signal = currentTest.signal ?? new AbortController().signal;
  vi.stubEnv('FIXTURE_FOLDER', folder);
  onTestFinished(() => void vi.unstubAllEnvs());
  const printed: string[] = [];
  const say = vi.spyOn(console, 'log').mockImplementation((line: string) => void printed.push(line));
  const run = new TestRun({ folder, logs: folder, signal, all: false, hasPython: true, only: ['fast'] });
  await run.inTurn([fixtures(...names)]);
  await run.repeatFailed();
  say.mockRestore();
  return { run, printed: printed.join('\n'), ...report(run) };
}

test('each file gets a line, and skipped tests are counted apart', async () => {
  const { printed, counts, isGood } = await runFixtures(['good']);
  expect(printed).toMatch(/^fixtures {2}✓ \S*good\.fixture\.ts: 1 passed, 1 skipped, \d+\.\d s$/m);
  expect(counts).toEqual({ passed: 1, failed: 0, skipped: 1 });
  expect(isGood).toBe(true);
});

test('a test that fails once and then passes alone is flaky: the run passes, and says so with the first failure', async () => {
  const { run, text, counts, isGood } = await runFixtures(['fails-once', 'good']);
  expect([counts, isGood]).toEqual([{ passed: 2, failed: 0, skipped: 1 }, true]);
  expect(run.flaky.map(({ name }) => name)).toEqual(['holds only the second time']);
  expect(text).toContain('1 FLAKY');
  expect(text).toContain('expected false to be true');
});

test('a test that fails twice fails the run', async () => {
  const { run, text, counts, isGood } = await runFixtures(['fails-twice', 'good']);
  expect([counts, isGood]).toEqual([{ passed: 1, failed: 1, skipped: 1 }, false]);
  expect(run.flaky).toEqual([]);
  expect(text).toContain("expected 'this' to be 'that'");
});

test('a test that reaches its limit is aborted, fails the run and is not repeated, and what it waited for does not disturb the next', async () => {
  const { printed, text, counts, isGood } = await runFixtures(['hangs']);
  expect([counts, isGood]).toEqual([{ passed: 1, failed: 1, skipped: 0 }, false]);
  expect(text).toContain('a test reached its limit of time');
  expect(printed).not.toContain('run once more');
});

test('when the limit of the whole is reached, every suite ends, and the tests that ran are named as failed', async ({
  signal,
}) => {
  const limit = new AbortController();
  const over = new Error('the limit of 45 minutes was reached');
  const folder = temporaryFolder();
  const running = runSuite(fixtures('hangs-for-ever'), {
    folder: path.join(folder, 's'),
    log: path.join(folder, 'log'),
    signal: AbortSignal.any([limit.signal, signal]),
    onStart: (outcome) => {
      const waiting = setInterval(() => {
        if (outcome.running().length === 0) return;
        clearInterval(waiting);
        limit.abort(over);
      }, 50);
    },
  });
  const { outcome } = await running;
  expect(outcome.tests).toMatchObject([
    {
      file: 'tests/run/fixtures/hangs-for-ever.fixture.ts',
      result: 'failed',
      failure: over.message,
      reachedLimit: true,
    },
  ]);
});

test('a process that a test leaves is ended, and named', async () => {
  const { run, text } = await runFixtures(['leaves']);
  expect(run.left).toEqual([expect.stringMatching(/^fixtures: \d+ sleep 612$/)]);
  expect(text).toContain('PROCESSES LEFT BEHIND');
  const pid = Number(/\d+/.exec(run.left[0] ?? '')?.[0]);
  expect(isAlive(identify(pid))).toBe(false);
});

test('a file that cannot be loaded, and one whose set-up fails, fail the run with the reason', async () => {
  const { text, isGood } = await runFixtures(['cannot-load', 'hook-fails']);
  expect(isGood).toBe(false);
  expect(text).toContain('this file cannot be loaded');
  expect(text).toContain('the set-up failed');
});

test.skipIf(!existsSync(INSTALLS.python))(
  'tests in Python are counted in the same way, and one that reaches its limit is named as such',
  async () => {
    const folder = temporaryFolder();
    const file = path.join(folder, 'some_test.py');
    mkdirSync(path.join(folder, 's'));
    writeFileSync(
      file,
      [
        'import time, pytest',
        'def test_holds(): pass',
        'def test_fails(): assert 1 == 2',
        '@pytest.mark.xfail',
        'def test_is_expected_to_fail(): assert False',
        'def test_hangs(): time.sleep(600)',
        '@pytest.fixture',
        'def broken(): raise ValueError("no fixture")',
        'def test_without_its_fixture(broken): pass',
      ].join('\n'),
    );
    const { outcome } = await runSuite(
      { name: 'python', area: 'fast', kind: 'pytest', marker: '', testSeconds: 1 },
      {
        folder: path.join(folder, 's'),
        log: path.join(folder, 'log'),
        again: [file],
        signal: new AbortController().signal,
      },
    );
    expect(outcome.tests.map(({ name, result, reachedLimit }) => [name, result, reachedLimit ?? false])).toEqual([
      ['test_holds', 'passed', false],
      ['test_fails', 'failed', false],
      ['test_is_expected_to_fail', 'skipped', false],
      ['test_hangs', 'failed', true],
      ['test_without_its_fixture', 'failed', false],
    ]);
    expect(outcome.tests[1]?.failure).toContain('assert 1 == 2');
    expect(path.resolve(REPOSITORY, outcome.tests[0]?.file ?? '')).toBe(file);
  },
);

test('a check that fails is shown with the end of what it printed, and a suite in which no test runs fails', async () => {
  const folder = temporaryFolder();
  const where = { folder: path.join(folder, 's'), log: path.join(folder, 'log'), signal: new AbortController().signal };
  const failing: Suite = {
    name: 'lint',
    area: 'checks',
    kind: 'check',
    command: ['sh', '-c', 'echo a rule is broken; exit 1'],
  };
  expect((await runSuite(failing, where)).outcome.tests).toMatchObject([
    { file: 'checks', name: 'lint', result: 'failed', failure: 'a rule is broken' },
  ]);
  expect(readFileSync(where.log, 'utf8')).toBe('a rule is broken\n');
  const { outcome } = await runSuite(fixtures('there-is-none'), where);
  expect(countsOf(outcome.tests)).toEqual({ passed: 0, failed: 1, skipped: 0 });
  expect(outcome.tests[0]?.failure).toContain('no test ran');
});
