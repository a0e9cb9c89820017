import { TrialgateError } from '../../../core/errors.ts';
import type { OperateRun, StartRun } from '../../../gateway/http/operate.ts';

/** Runs that answer what they are asked to do as a test says, in place of Temporal, which cli/run/operate-in-thread.test.ts has. */
export class FakeOperator {
  /** What was asked: the run and the verb as JSON. */
  readonly asked: string[] = [];
  answer: OperateRun = async (runId, { verb }) => ({ run_id: runId, message: `run ${runId} did ${verb}` });

  readonly operateRun: OperateRun = (runId, verb, signal) => {
    this.asked.push(`${runId} ${JSON.stringify(verb)}`);
    return this.answer(runId, verb, signal);
  };

  /** What was to be started. */
  readonly started: Parameters<StartRun>[0][] = [];
  start: StartRun = async ({ run_id: name = 'started' }, report) => {
    report('agents and verifiers work');
    return { run_id: name, message: `run ${name} started` };
  };

  readonly startRun: StartRun = (asked, report, signal) => {
    this.started.push(asked);
    return this.start(asked, report, signal);
  };
}

/** Refuses as a run does that cannot do it, or as the check of a run file does. */
export const refusing = (message: string) => (): Promise<never> =>
  Promise.reject(new TrialgateError('bad_input', message));
