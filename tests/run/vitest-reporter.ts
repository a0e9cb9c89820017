import { appendFileSync } from 'node:fs';
import type { Reporter, TestCase, TestModule } from 'vitest/node';
import { EVENTS_FILE, type TestEvent } from './events.ts';

type Failure = { message: string; stack?: string };

/** Writes the events of vitest's tests for the runner (`events.ts`). */
export default class EventReporter implements Reporter {
  onTestModuleQueued(module: TestModule): void {
    write({ event: 'open', file: module.relativeModuleId });
  }

  onTestCaseReady(test: TestCase): void {
    write({ event: 'start', ...nameOf(test) });
  }

  onTestCaseResult(test: TestCase): void {
    const { state, errors = [] } = test.result();
    write({
      event: 'end',
      ...nameOf(test),
      result: state === 'passed' || state === 'failed' ? state : 'skipped',
      seconds: (test.diagnostic()?.duration ?? 0) / 1000,
      ...(state === 'failed' && { failure: textOf(errors) }),
    });
  }

  onTestModuleEnd(module: TestModule): void {
    const errors = [...module.errors(), ...[...module.children.allSuites()].flatMap((suite) => suite.errors())];
    // A test that ran while its file failed has its own event.
    const hasFailedTest = [...module.children.allTests('failed')].length > 0;
    write({
      event: 'file',
      file: module.relativeModuleId,
      seconds: module.diagnostic().duration / 1000,
      ...((errors.length > 0 || (!module.ok() && !hasFailedTest)) && { failure: textOf(errors) }),
    });
  }

  onTestRunEnd(_modules: readonly TestModule[], errors: readonly Failure[]): void {
    write({ event: 'done', ...(errors.length > 0 && { failure: textOf(errors) }) });
  }
}

const nameOf = (test: TestCase): { file: string; test: string } => ({
  file: test.module.relativeModuleId,
  test: test.fullName,
});

/** Returns each error with its stack. The stack begins with the message, unless the error crossed from another thread. */
const textOf = (errors: readonly Failure[]): string =>
  errors.map(({ message, stack }) => (stack?.includes(message) ? stack : `${message}\n${stack ?? ''}`)).join('\n');

function write(event: TestEvent): void {
  const file = process.env[EVENTS_FILE];
  if (file) appendFileSync(file, `${JSON.stringify(event)}\n`);
}
