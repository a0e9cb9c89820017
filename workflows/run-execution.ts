import {
  allHandlersFinished,
  ApplicationFailure,
  CancellationScope,
  condition,
  executeChild,
  getExternalWorkflowHandle,
  isCancellation,
  upsertSearchAttributes,
  workflowInfo,
} from '@temporalio/workflow';
import type { RunPosition } from '../activities/run/prepare-run.ts';
import { namesRepair, needsOtherModel, OTHER_MODEL_ADVICE } from '../core/block-advice.ts';
import type { RunConfig } from '../core/run-config/run-config.ts';
import { gpu, preparing, store, unattended, waiting } from './activities.ts';
import { allOrNone } from './all-or-none.ts';
import { attributesOf } from './attributes.ts';
import { cutGroups } from './cut-groups.ts';
import { describe, innermost } from './describe.ts';
import { evaluatePolicy } from './evaluate-policy.ts';
import { grpoIteration } from './grpo-iteration.ts';
import type { RunStatusReport } from './messages.ts';
import { Operator } from './operator.ts';
import { enginesOf, inTurn, publish } from './publish-version.ts';
import { poolRepairs, type PoolRepairs } from './repair-pool.ts';
import { Rollouts } from './rollouts.ts';
import { RunStatus } from './run-status.ts';

/** The values that a run passes to its next execution. Absent when a person starts the run. */
export type RunProgress = {
  /** The point to go on from; absent: as the store says. */
  at?: { iteration: number; policyVersion: number };
  /** True when the run continues the open take instead of opening the next one. */
  resume?: boolean;
  /** True when the pool has `at.policyVersion`. */
  published?: boolean;
  /** In milliseconds since the epoch, as is `extendedUntil`, the latest extended deadline of a trial. */
  pausedUntil?: number;
  extendedUntil?: number;
  /** The run file's `release_engines_after`, for a block before that is read. */
  releaseEnginesAfter?: number;
  /** True when the execution before cut groups because it released its engines. Their unfinished trials run again. */
  wasCut?: boolean;
};

const POOL_SECONDS = 86_400;

/** One execution of `trainRun`: its state, and the steps of its story. */
export class RunExecution {
  readonly #runId = workflowInfo().workflowId;
  readonly #runFile: unknown;
  readonly #progress: RunProgress;
  readonly #status: RunStatus;
  readonly #operator: Operator;
  readonly #pool: PoolRepairs;
  /** True when a person resumed the run. A reset replays this execution's arguments, but its take is another one. */
  readonly #isResumed: boolean;
  #rollouts: Rollouts | undefined;
  #extendedUntil: number;
  /** True when the run has engines with its version, as far as this execution knows. */
  #isPublished: boolean;
  #wasCut = false;
  #prepared: RunPosition | undefined;
  /** The next iteration to run, and the version that it samples from. */
  #iteration = 0;
  #policyVersion = 0;

  constructor(runFile: unknown, progress: RunProgress) {
    this.#runFile = runFile;
    this.#progress = progress;
    this.#extendedUntil = progress.extendedUntil ?? 0;
    this.#isPublished = progress.published === true;
    const extend = (until: number) => void (this.#extendedUntil = Math.max(this.#extendedUntil, until));
    this.#status = new RunStatus(this.#runId, (id) => this.#rollouts?.ended(id), extend);
    this.#operator = new Operator(this.#runId, this.#status, progress.pausedUntil ?? 0, () =>
      this.#rollouts?.pollSoon(),
    );
    const { runId: executionId, firstExecutionRunId } = workflowInfo();
    this.#isResumed = progress.resume === true && executionId === firstExecutionRunId;
    this.#pool = poolRepairs(this.#runId);
  }

  /** Checks the run file and finds the iteration to go on from. */
  async prepare(): Promise<void> {
    const { at } = this.#progress;
    const prepare = () => preparing.prepareRun({ runId: this.#runId, runFile: this.#runFile });
    // An invalid run file fails the run at once. A failure in a later execution blocks the run until a person repairs the cause.
    this.#prepared = at ? await this.#untilDone(prepare) : await prepare();
    this.#iteration = at?.iteration ?? this.#prepared.iteration;
    this.#policyVersion = at?.policyVersion ?? this.#prepared.policyVersion;
    const { iterations } = this.#config;
    Object.assign(this.#report, { iteration: this.#iteration, iterations, policy_version: this.#policyVersion });
    upsertSearchAttributes(
      attributesOf({ runId: this.#runId, iteration: this.#iteration, version: this.#policyVersion }),
    );
  }

  /** Opens a take of the iteration, or continues the open one, and cancels what the takes before it still run. */
  async openTake(): Promise<void> {
    if (!this.hasIteration()) return;
    const input = {
      runId: this.#runId,
      iteration: this.#iteration,
      policyVersion: this.#policyVersion,
      resume: this.#isResumed,
    };
    const { take, superseded } = await this.#untilDone(() => store.openTake(input));
    this.#report.take = take;
    await Promise.all(
      superseded.map((id) =>
        getExternalWorkflowHandle(id)
          .cancel()
          .catch(() => {}),
      ),
    );
  }

  /** Takes a pool of engines and publishes the policy version to them, unless they have it from the execution before. */
  async takeEngines(): Promise<void> {
    // A run that is redone after its end has released its pool.
    this.#isPublished = this.#isPublished && (await this.#untilDone(() => this.#poolHasVersion()));
    if (!this.#isPublished) await this.#untilDone(() => this.#acquireAndPublish());
  }

  async evaluateBaseModel(): Promise<void> {
    if (this.#iteration > 0 || !this.#config.evaluation.before) return;
    await this.#evaluateAlone();
  }

  /** True when this execution has an iteration to run, also if a person asked for a stop, which takes effect after an iteration. */
  hasIteration(): boolean {
    return this.#iteration < this.#config.iterations;
  }

  /** Samples groups from the version before, trains on them, and publishes the new version. */
  async trainOneIteration(): Promise<void> {
    const { take } = this.#report;
    this.#rollouts = new Rollouts({
      runId: this.#runId,
      iteration: this.#iteration,
      take,
      policyVersion: this.#policyVersion,
    });
    this.#policyVersion = await this.#untilDone((isAgain) => this.#sampleAndTrain(isAgain));
    this.#iteration += 1;
    await this.#pool.settled();
    await condition(allHandlersFinished);
  }

  /** True after the run's last iteration, and when a person stops the run. */
  isOver(): boolean {
    return this.#operator.isStopping || this.#iteration >= this.#latestConfig.iterations;
  }

  /** Returns the arguments of the execution that runs the next iteration. */
  nextExecution(): [runFile: unknown, progress: RunProgress] {
    const { changed, pausedUntil } = this.#operator;
    const at = { iteration: this.#iteration, policyVersion: this.#policyVersion };
    const progress = {
      at,
      published: true,
      pausedUntil,
      extendedUntil: this.#extendedUntil,
      releaseEnginesAfter: this.#releaseEnginesAfter,
      wasCut: this.#wasCut,
    };
    return [changed ?? this.#runFile, progress];
  }

  /** Evaluates the last version and ends the run. */
  async finish(): Promise<RunStatusReport> {
    this.#report.policy_version = this.#policyVersion;
    if (this.#latestConfig.evaluation.after && this.#policyVersion > 0) await this.#evaluateAlone();
    this.#status.enter('completed');
    await this.#end('completed');
    return this.#report;
  }

  /** Ends the run after a cancellation or a failure. */
  async endBy(error: unknown): Promise<void> {
    if (isCancellation(error)) await this.#end('cancelled', this.#cancellationReason());
    else if (error instanceof Error && !isContinueAsNew(error)) await this.#end('failed', describe(error));
  }

  /** Keeps the reason of a block, because a person still needs it afterwards. */
  #cancellationReason(): string {
    const { cancelledHow } = this.#operator;
    const { reason } = this.#report;
    return reason === null ? cancelledHow : `${reason} (then ${cancelledHow})`;
  }

  get #report(): RunStatusReport {
    return this.#status.report;
  }

  get #config(): RunConfig {
    if (!this.#prepared) throw new Error('the run is not prepared yet');
    return this.#prepared.config;
  }

  /** The run file with a person's latest changes. */
  get #latestConfig(): RunConfig {
    return this.#operator.changed ?? this.#config;
  }

  /** Absent in a run that a release without this setting began. Such a run keeps its engines, because its history has no timer for them. */
  get #releaseEnginesAfter(): number | undefined {
    const config = this.#operator.changed ?? this.#prepared?.config;
    return config?.release_engines_after ?? this.#progress.releaseEnginesAfter;
  }

  #poolHasVersion(): Promise<boolean> {
    return store.poolHas({ runId: this.#runId, version: this.#policyVersion });
  }

  async #acquireAndPublish(): Promise<void> {
    const [runId, version] = [this.#runId, this.#policyVersion];
    this.#status.enter('waiting for engines', 'engines that no other run has', POOL_SECONDS);
    await waiting(POOL_SECONDS * 1000).acquirePool({ runId });
    const { train } = this.#config.deadlines;
    this.#status.enter('publish', 'the trainer to load the model', train);
    if (version === 0) await loadBase(runId, train);
    const reportWait = async (waitsFor: string, seconds?: number) =>
      this.#status.waitFor(waitsFor, seconds === undefined ? null : Date.now() + seconds * 1000);
    await reportWait(...enginesOf(version));
    await publish({ runId, version }, reportWait);
    this.#isPublished = true;
  }

  /** Takes engines again after a block in which the run released them. */
  async #takeEnginesAgain(): Promise<void> {
    if (this.#isPublished) return;
    // A resume may have come before they were released.
    this.#isPublished = await this.#poolHasVersion();
    if (!this.#isPublished) await this.#acquireAndPublish();
  }

  async #sampleAndTrain(isAgain: boolean): Promise<number> {
    await this.#takeEnginesAgain();
    const { take } = this.#report;
    const [runId, iteration, policyVersion, rollouts] = [
      this.#runId,
      this.#iteration,
      this.#policyVersion,
      this.#rollouts,
    ];
    const { deadlines, evaluation } = this.#latestConfig;
    const start = Date.now();
    const isDue = evaluation.every !== null && iteration > 0 && iteration % evaluation.every === 0;
    // The evaluation is of this version: the next one is not published before its end.
    const evaluated = () => (isDue ? this.#evaluate() : Promise.resolve());
    this.#status.enter('rollout');
    const ready = async () =>
      rollouts?.untilReady({
        reopen: isAgain || this.#isResumed || this.#wasCut || this.#progress.wasCut === true,
        seconds: deadlines.iteration,
        onChange: (rollout, until) => this.#status.showRollout(rollout, until),
        whilePaused: () => this.#operator.whilePaused(),
        extendedUntil: () => this.#extendedUntil,
      });
    await this.#withRepairs(() => allOrNone([ready, evaluated])).catch((error: unknown) => this.#closeRollouts(error));
    await this.#operator.whilePaused();
    const seconds = { rollout: (Date.now() - start) / 1000 };
    const step = () =>
      executeChild(grpoIteration, {
        workflowId: `${runId}/${iteration}.${take}`,
        args: [{ runId, iteration, take, trainSeconds: deadlines.train, seconds }],
        searchAttributes: attributesOf({ runId, iteration, version: policyVersion, phase: 'batch' }),
        staticSummary: `iteration ${iteration}, take ${take}, from policy ${policyVersion}`,
      });
    // The step of a terminated execution may still be closing.
    return inTurn(step);
  }

  /** Waits until the groups that a failure cancelled have closed. Only then is the run blocked, so that a resume can start them again. */
  async #closeRollouts(error: unknown): Promise<never> {
    if (this.#rollouts && !isCancellation(error)) {
      this.#status.waitFor('cancelled groups to close');
      await this.#rollouts.closed();
    }
    throw error;
  }

  /** Runs work that needs engines, and repairs lost ones meanwhile. */
  #withRepairs<T>(work: () => Promise<T>): Promise<T> {
    return this.#pool.during(work, () => Date.now() < this.#operator.pausedUntil);
  }

  /** Evaluates while no rollout is under way. */
  #evaluateAlone(): Promise<void> {
    return this.#untilDone(async () => {
      await this.#takeEnginesAgain();
      await this.#withRepairs(() => this.#evaluate());
    });
  }

  /** Samples the held-out tasks from the current version. */
  async #evaluate(): Promise<void> {
    await this.#operator.whilePaused();
    const [runId, version] = [this.#runId, this.#policyVersion];
    const { evaluation, deadlines } = this.#latestConfig;
    if (evaluation.tasks.length === 0) return;
    const child = () =>
      executeChild(evaluatePolicy, {
        workflowId: `${runId}/eval@${version}`,
        args: [{ runId, policyVersion: version, deadlineSeconds: deadlines.iteration, groupSeconds: deadlines.group }],
        searchAttributes: attributesOf({ runId, version, phase: 'evaluation' }),
        staticSummary: `held-out tasks, policy ${version}`,
      });
    // The evaluation of a terminated execution may still be closing.
    await inTurn(child);
  }

  async #end(as: 'completed' | 'failed' | 'cancelled', reason?: string): Promise<void> {
    this.#operator.isEnding = true;
    const runId = this.#runId;
    await CancellationScope.nonCancellable(async () => {
      // Earlier executions may have started groups, even if this one has started none.
      const { iteration, take, policy_version: policyVersion } = this.#report;
      await (this.#rollouts ?? new Rollouts({ runId, iteration, take, policyVersion })).cancelAll();
      await this.#pool.settled();
      // Others wait for each of the two: one that fails must not prevent the other.
      await Promise.allSettled([store.releasePool({ runId }), store.setRunStatus({ runId, status: as, reason })]);
    });
  }

  /** Repeats `work` until it succeeds. A failure that a person must repair blocks the run; what is finished is kept, and `resume` tries again. */
  async #untilDone<T>(work: (isAgain: boolean) => Promise<T>): Promise<T> {
    for (let isAgain = false; ; isAgain = true) {
      try {
        return await work(isAgain);
      } catch (error) {
        if (isCancellation(error)) throw error;
        const before = this.#report.phase;
        const type = typeOf(error);
        this.#report.reason = `${describe(error)}${needsOtherModel(type) ? `. ${OTHER_MODEL_ADVICE}` : ''}`;
        this.#report.reason_type = type;
        this.#operator.block();
        this.#status.enter('blocked');
        this.#status.waitFor(this.#person);
        await this.#writeStatus('blocked', this.#report.reason);
        await this.#untilResumed(before);
      }
    }
  }

  /** What a blocked run waits for, with the command that goes on, unless its reason names one. */
  get #person(): string {
    return namesRepair(this.#report.reason)
      ? 'a person: its reason says what to do'
      : `a person: repair the cause, then "npx trialgate resume ${this.#runId}"`;
  }

  /** Waits for a person. Meanwhile the run releases its engines, when that is due. Then goes on in phase `next`. */
  async #untilResumed(next: string): Promise<void> {
    const blocked = new CancellationScope();
    const releasing = blocked
      .run(() => this.#releaseEngines())
      .catch((error: unknown) => {
        if (!isCancellation(error))
          this.#status.waitFor(`${this.#person}; its engines could not be released: ${describe(error)}`);
      });
    await this.#operator.untilResumed();
    blocked.cancel();
    await this.#writeStatus('running');
    this.#report.reason = null;
    this.#report.reason_type = null;
    this.#status.enter(next);
    // Groups that the release has cut start again under the same ids, so they must close first.
    await releasing;
  }

  async #releaseEngines(): Promise<void> {
    await this.#untilReleaseIsDue();
    const runId = this.#runId;
    this.#status.waitFor(`${this.#person}; its engines are being released`);
    const ids = await unattended.listRunningGroups({ runId, withEvaluations: true });
    if (ids.length > 0) {
      this.#wasCut = true;
      await CancellationScope.nonCancellable(() => cutGroups(ids));
    }
    if (CancellationScope.current().consideredCancelled) return;
    // An answer may be lost, so the engines count as released from here on.
    this.#isPublished = false;
    const hadEngines = await unattended.releaseUnusedPool({ runId });
    this.#status.waitFor(hadEngines ? `${this.#person}; its engines were released` : this.#person);
  }

  /** Waits for `release_engines_after`, which a person may change meanwhile, if the engines have a version of the run. */
  async #untilReleaseIsDue(): Promise<void> {
    const start = Date.now();
    await condition(() => this.#releaseEnginesAfter !== undefined);
    if (!this.#isPublished) return;
    const due = () => start + (this.#releaseEnginesAfter ?? 0) * 1000;
    for (let until = due(); Date.now() < until; until = due()) {
      this.#status.waitFor(`${this.#person}; its engines will be released at ${new Date(until).toISOString()}`);
      await condition(() => due() !== until, until - Date.now());
    }
  }

  /** Writes the run's status if it can: the store may be the cause of the block. */
  async #writeStatus(as: 'blocked' | 'running', reason?: string): Promise<void> {
    try {
      await store.setRunStatus({ runId: this.#runId, status: as, reason });
    } catch (error) {
      if (isCancellation(error) || (error instanceof Error && isRefusal(error))) throw error;
    }
  }
}

async function loadBase(runId: string, limitSeconds: number): Promise<void> {
  const base = await gpu(limitSeconds).loadBase(await store.planBase({ runId }));
  await store.recordBase({ runId, base });
}

function typeOf(error: unknown): string | null {
  const cause = innermost(error);
  return cause instanceof ApplicationFailure ? (cause.type ?? null) : null;
}

const isRefusal = (error: Error): boolean =>
  error.cause instanceof ApplicationFailure && error.cause.nonRetryable === true;
const isContinueAsNew = (error: Error): boolean => error.name === 'ContinueAsNew';
