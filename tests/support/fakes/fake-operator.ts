import { TrialgateError } from '../../../core/errors.ts';
import type { OperateRun } from '../../../gateway/http/operate.ts';

/** Runs that answer what they are asked to do as a test says, in place of Temporal, which cli/run/operate-in-thread.test.ts has. */
export class FakeOperator {
  /** What was asked: the run and the verb as JSON. */
  readonly asked: string[] = [];
  answer: OperateRun = async (runId, { verb }) => ({ run_id: runId, message: `run ${runId} did ${verb}` });

  readonly operateRun: OperateRun = (runId, verb, signal) => {
    this.asked.push(`${runId} ${JSON.stringify(verb)}`);
    return this.answer(runId, verb, signal);
  };
}

/** Refuses as a run does that cannot do it. */
export const refusing =
  (message: string): OperateRun =>
  async () => {
    throw new TrialgateError('bad_input', message);
  };
