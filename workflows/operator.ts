import { ApplicationFailure, condition, getExternalWorkflowHandle, setHandler } from '@temporalio/workflow';
import type { RunConfig } from '../core/run-config/run-config.ts';
import { store } from './activities.ts';
import {
  PAUSE_SECONDS,
  RUN_ENDING,
  configureUpdate,
  endingSignal,
  extendSignal,
  extendUpdate,
  pauseUpdate,
  resumeUpdate,
  skipSignal,
  skipUpdate,
  stopUpdate,
} from './messages.ts';
import type { RunStatus } from './run-status.ts';

/** Handles what a person asks of a run, and keeps it for the run. */
export class Operator {
  isStopping = false;
  /** True when the run is closing, so that no request has an effect any more. */
  isEnding = false;
  /** Says how the run is cancelled. A cancellation that no command of ours announced came through Temporal. */
  cancelledHow = 'cancelled through Temporal';
  /** The run file after its last change; null when it was not changed. */
  changed: RunConfig | null = null;
  /** In milliseconds since the epoch. */
  pausedUntil: number;
  #isBlocked = false;
  readonly #status: RunStatus;

  constructor(runId: string, status: RunStatus, pausedUntil: number, onChange: () => void) {
    this.#status = status;
    this.pausedUntil = pausedUntil;
    const { report } = status;
    setHandler(stopUpdate, () => {
      this.isStopping = true;
      return `run ${runId} stops after iteration ${report.iteration}`;
    });
    setHandler(
      pauseUpdate,
      ({ seconds = PAUSE_SECONDS } = {}) => {
        this.pausedUntil = Date.now() + seconds * 1000;
        return `run ${runId} starts no more groups and no train step until ${new Date(this.pausedUntil).toISOString()}; what runs goes on`;
      },
      { validator: (input) => requireSeconds(input?.seconds ?? PAUSE_SECONDS) },
    );
    setHandler(
      resumeUpdate,
      () => {
        if (!this.#isBlocked && Date.now() >= this.pausedUntil) return `run ${runId} is under way (${report.phase})`;
        this.pausedUntil = 0;
        this.#isBlocked = false;
        return `run ${runId} goes on`;
      },
      {
        validator: () => {
          if (this.isEnding)
            throw ApplicationFailure.create({
              type: RUN_ENDING,
              message: `run ${runId} is ending: resume it when it has ended`,
              nonRetryable: true,
            });
        },
      },
    );
    setHandler(endingSignal, ({ reason }) => void (this.cancelledHow = reason));
    setHandler(configureUpdate, async (changes) => {
      this.changed = await store.configureRun({ runId, changes });
      onChange();
      return `run ${runId} has ${Object.keys(changes).join(', ')} changed, from the next use on`;
    });
    setHandler(
      skipUpdate,
      async ({ trial }) => {
        const { groupId, trialIndex } = await store.findOpenTrial({ runId, trialId: trial });
        await getExternalWorkflowHandle(groupId).signal(skipSignal, { trialIndex });
        return `trial ${trial} is skipped`;
      },
      { validator: (input) => requireTrial(input?.trial) },
    );
    setHandler(
      extendUpdate,
      async ({ trial, seconds }) => {
        const { groupId, trialIndex } = await store.findOpenTrial({ runId, trialId: trial });
        await getExternalWorkflowHandle(groupId).signal(extendSignal, { trialIndex, seconds });
        return `trial ${trial} has ${seconds} s more`;
      },
      {
        validator: (input) => {
          requireTrial(input?.trial);
          requireSeconds(input?.seconds);
        },
      },
    );
  }

  /** Waits until the run is not paused, by a resume or by time. Returns the milliseconds that it waited. */
  async whilePaused(): Promise<number> {
    const { phase } = this.#status.report;
    const start = Date.now();
    const isPaused = () => Date.now() < this.pausedUntil;
    if (!isPaused()) return 0;
    for (let until = this.pausedUntil; isPaused(); until = this.pausedUntil) {
      this.#status.enter('paused');
      this.#status.waitFor('a person: resume', until);
      await condition(() => this.pausedUntil !== until, until - Date.now());
    }
    // A caller that found the phase `paused` leaves it to the caller that waited before.
    if (phase !== 'paused') this.#status.enter(phase);
    return Date.now() - start;
  }

  block(): void {
    this.#isBlocked = true;
  }

  async untilResumed(): Promise<void> {
    await condition(() => !this.#isBlocked);
  }
}

const MOST_SECONDS = 30 * 86_400;

function requireSeconds(value: unknown): void {
  if (typeof value === 'number' && value > 0 && value <= MOST_SECONDS) return;
  throw refusal(
    `seconds: expected a number above 0, at most ${MOST_SECONDS} (30 days), found ${JSON.stringify(value)}`,
  );
}

function requireTrial(value: unknown): void {
  if (typeof value !== 'string' || value === '')
    throw refusal(`trial: expected a trial's id, found ${JSON.stringify(value)}`);
}

const refusal = (message: string) => ApplicationFailure.create({ type: 'bad_input', message, nonRetryable: true });
