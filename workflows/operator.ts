import { ApplicationFailure, condition, getExternalWorkflowHandle, setHandler } from '@temporalio/workflow';
import type { RunConfig } from '../activities/run-config.ts';
import { store } from './activities.ts';
import { configureUpdate, extendSignal, extendUpdate, pauseUpdate, resumeUpdate, skipSignal, skipUpdate, stopUpdate } from './messages.ts';
import type { RunStatus } from './run-status.ts';

const PAUSE_SECONDS = 86_400;

/** What a person asked of a run. */
export class Operator {
  isStopping = false;
  /** The run file as it was last changed; null: as it was. */
  changed: RunConfig | null = null;
  #isResumed = false;
  /** In milliseconds since the epoch. */
  #pausedUntil = 0;
  readonly #status: RunStatus;

  constructor(runId: string, status: RunStatus) {
    this.#status = status;
    const { report } = status;
    setHandler(stopUpdate, () => {
      this.isStopping = true;
      return `run ${runId} stops after iteration ${report.iteration}`;
    });
    setHandler(pauseUpdate, ({ seconds = PAUSE_SECONDS } = {}) => {
      this.#pausedUntil = Date.now() + seconds * 1000;
      return `run ${runId} starts no more groups and no train step until ${new Date(this.#pausedUntil).toISOString()}; what runs goes on`;
    }, { validator: (input) => requirePositive('seconds', input?.seconds ?? PAUSE_SECONDS) });
    setHandler(resumeUpdate, async () => {
      const wasPaused = Date.now() < this.#pausedUntil;
      this.#pausedUntil = 0;
      if (report.phase === 'blocked') {
        this.#isResumed = true;
        await condition(() => report.phase !== 'blocked');
      } else if (!wasPaused) return `run ${runId} is neither paused nor blocked: ${report.phase}`;
      return `run ${runId} goes on`;
    });
    setHandler(configureUpdate, async (changes) => {
      this.changed = await store.configureRun({ runId, changes });
      return `run ${runId} has ${Object.keys(changes).join(', ')} changed, from the next use on`;
    });
    setHandler(skipUpdate, async ({ trial }) => {
      const { groupId, member } = await store.findOpenTrial({ runId, trialId: trial });
      await getExternalWorkflowHandle(groupId).signal(skipSignal, { member });
      return `trial ${trial} is skipped`;
    });
    setHandler(extendUpdate, async ({ trial, seconds }) => {
      const { groupId, member } = await store.findOpenTrial({ runId, trialId: trial });
      await getExternalWorkflowHandle(groupId).signal(extendSignal, { member, seconds });
      return `trial ${trial} has ${seconds} s more`;
    }, { validator: ({ seconds }) => requirePositive('seconds', seconds) });
  }

  /** Until nobody pauses the run: a pause ends by itself. */
  async untilUnpaused(): Promise<void> {
    const { phase } = this.#status.report;
    const isPaused = () => Date.now() < this.#pausedUntil;
    if (!isPaused()) return;
    for (let until = this.#pausedUntil; isPaused(); until = this.#pausedUntil) {
      this.#status.enter('paused');
      this.#status.waitFor('a person: resume', until);
      await condition(() => this.#pausedUntil !== until, until - Date.now());
    }
    this.#status.enter(phase);
  }

  /** Call it before the run says that it is blocked: whoever reads that may resume it at once. Returns the wait. */
  blocks(): () => Promise<void> {
    this.#isResumed = false;
    return () => condition(() => this.#isResumed);
  }
}

function requirePositive(name: string, value: unknown): void {
  if (typeof value === 'number' && value > 0) return;
  throw ApplicationFailure.create({ type: 'bad_input', message: `${name}: expected a number above 0, found ${JSON.stringify(value)}`, nonRetryable: true });
}
