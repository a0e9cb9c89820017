import type { TestEvent } from './events.ts';

export type Counts = { passed: number; failed: number; skipped: number };
/** `again` is true for a test of which vitest or pytest said that it reached its limit of time: to run it again would show nothing. */
export type TestOutcome = {
  file: string;
  name: string;
  result: 'passed' | 'failed' | 'skipped';
  seconds: number;
  failure?: string;
  reachedLimit?: boolean;
};
export type RunningTest = { file: string; name: string; since: number };

/** A test, a hook and a test in Python that reached their limits, as vitest and pytest-timeout say it. */
const REACHED_LIMIT = /\b(Test|Hook) timed out in \d+ ?ms|Timeout \(>[\d.]+s\) from pytest-timeout/;

/** Collects what a suite said of its tests. */
export class SuiteOutcome {
  readonly tests: TestOutcome[] = [];
  readonly #open = new Map<string, RunningTest>();
  readonly #running = new Map<string, RunningTest>();
  /** True when the suite has said that all of its files ended. */
  done = false;

  /** Returns the counts of the file that this event ends. */
  add(event: TestEvent, now = Date.now()): { file: string; seconds: number; counts: Counts } | undefined {
    switch (event.event) {
      case 'open':
        this.#open.set(event.file, {
          file: event.file,
          name: 'the file, or a test that blocks its thread',
          since: now,
        });
        return;
      case 'start':
        this.#running.set(`${event.file}\n${event.test}`, { file: event.file, name: event.test, since: now });
        return;
      case 'end': {
        const { file, test: name, result, seconds, failure } = event;
        this.#running.delete(`${file}\n${name}`);
        this.tests.push({ file, name, result, seconds, ...failed(failure) });
        return;
      }
      case 'file': {
        const { file, seconds, failure } = event;
        this.#open.delete(file);
        if (failure !== undefined) this.fail(file, 'the file', failure);
        return { file, seconds, counts: countsOf(this.tests.filter((test) => test.file === file)) };
      }
      case 'done':
        this.done = true;
        if (event.failure !== undefined) this.fail('', 'an error outside of the tests', event.failure);
    }
  }

  fail(file: string, name: string, failure: string): void {
    this.tests.push({ file, name, result: 'failed', seconds: 0, ...failed(failure) });
  }

  /** Returns the tests that run, and the files of which none runs. */
  running(): RunningTest[] {
    const tests = [...this.#running.values()];
    return [...tests, ...[...this.#open.values()].filter(({ file }) => !tests.some((test) => test.file === file))];
  }

  /** Ends the tests that run as failed, for this reason. */
  cut(reason: string, now = Date.now()): void {
    for (const { file, name, since } of this.running())
      this.tests.push({
        file,
        name,
        result: 'failed',
        seconds: (now - since) / 1000,
        failure: reason,
        reachedLimit: true,
      });
    this.#running.clear();
    this.#open.clear();
  }
}

const failed = (failure: string | undefined): Pick<TestOutcome, 'failure' | 'reachedLimit'> =>
  failure === undefined ? {} : { failure, reachedLimit: REACHED_LIMIT.test(failure) };

export function countsOf(tests: readonly TestOutcome[]): Counts {
  const of = (result: TestOutcome['result']): number => tests.filter((test) => test.result === result).length;
  return { passed: of('passed'), failed: of('failed'), skipped: of('skipped') };
}
