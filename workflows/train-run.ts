import {
  allHandlersFinished,
  ApplicationFailure,
  CancellationScope,
  condition,
  continueAsNew,
  executeChild,
  getExternalWorkflowHandle,
  isCancellation,
  patched,
  upsertSearchAttributes,
  workflowInfo,
} from '@temporalio/workflow';
import type { RunPosition } from '../activities/run/prepare-run.ts';
import type { RunConfig } from '../core/run-config/run-config.ts';
import { gpu, store, waiting } from './activities.ts';
import { allOrNone } from './all-or-none.ts';
import { attributesOf } from './attributes.ts';
import { describe } from './describe.ts';
import { evaluatePolicy } from './evaluate-policy.ts';
import { grpoIteration } from './grpo-iteration.ts';
import { poolRepairs } from './repair-pool.ts';
import type { RunStatusReport } from './messages.ts';
import { Operator } from './operator.ts';
import { enginesOf, inTurn, publish } from './publish-version.ts';
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
};

const POOL_SECONDS = 86_400;

/**
 * A training run. Each execution is one iteration and continues as new, so that histories stay small and `temporal workflow reset --type
 * LastContinuedAsNew` redoes an iteration. The workflow's id is the run's. Its groups may outlive an execution, and with `max_staleness`
 * an iteration.
 */
export async function trainRun(runFile: unknown, progress: RunProgress = {}): Promise<RunStatusReport> {
  const runId = workflowInfo().workflowId;
  let rollouts: Rollouts | undefined;
  let { extendedUntil = 0 } = progress;
  const status = new RunStatus(runId, (id) => rollouts?.ended(id), (until) => void (extendedUntil = Math.max(extendedUntil, until)));
  const { report } = status;
  const operator = new Operator(runId, status, progress.pausedUntil ?? 0, () => rollouts?.pollSoon());
  // A reset replays this execution's arguments, but its take is another one.
  const { runId: executionId, firstExecutionRunId } = workflowInfo();
  const isResumed = progress.resume === true && executionId === firstExecutionRunId;
  const pool = poolRepairs(runId);

  try {
    const prepare = () => store.prepareRun({ runId, runFile });
    // An invalid run file fails the run at once. A failure in a later execution blocks the run until a person repairs the cause.
    const position = progress.at ? await untilDone(prepare) : await prepare();
    const { iteration, policyVersion } = progress.at ?? position;
    Object.assign(report, { iteration, iterations: position.config.iterations, policy_version: policyVersion });
    upsertSearchAttributes(attributesOf({ runId, iteration, version: policyVersion }));

    let take = 0;
    if (iteration < position.config.iterations) {
      const opened = await untilDone(() => store.openTake({ runId, iteration, policyVersion, resume: isResumed }));
      report.take = take = opened.take;
      await Promise.all(opened.superseded.map((id) => getExternalWorkflowHandle(id).cancel().catch(() => {})));
    }

    // A run that is redone after its end has released its pool.
    if (!progress.published || !(await untilDone(() => store.poolHas({ runId, version: policyVersion })))) {
      await untilDone(async () => {
        status.enter('waiting for engines', 'engines that no other run has', POOL_SECONDS);
        await waiting(POOL_SECONDS * 1000).acquirePool({ runId });
        const { train } = position.config.deadlines;
        status.enter('publish', 'the trainer to load the model', train);
        if (policyVersion === 0) await loadBase(runId, train);
        const reportWait = async (waitsFor: string, atMost?: number) => status.waitFor(waitsFor, atMost === undefined ? null : Date.now() + atMost * 1000);
        await reportWait(...enginesOf(policyVersion));
        await publish({ runId, version: policyVersion }, reportWait);
      });
    }
    if (iteration === 0 && position.config.evaluation.before) await untilDone(() => watched(() => evaluate(position, policyVersion)));
    if (iteration >= position.config.iterations) return await finish(position, policyVersion);

    rollouts = new Rollouts({ runId, iteration, take, policyVersion });
    const next = await untilDone((isAgain) => iterate(position, isAgain));
    await pool.settled();
    await condition(allHandlersFinished);
    const { isStopping, pausedUntil, changed } = operator;
    if (isStopping || iteration + 1 >= (changed ?? position.config).iterations) return await finish(position, next);
    return await continueAsNew<typeof trainRun>(changed ?? runFile, { at: { iteration: iteration + 1, policyVersion: next }, published: true, pausedUntil, extendedUntil });
  } catch (error) {
    if (isCancellation(error)) await end('cancelled', 'cancelled by a person');
    else if (error instanceof Error && !isContinueAsNew(error)) await end('failed', describe(error));
    throw error;
  }

  /** Samples groups from the version before and trains on them. Returns the new version. */
  async function iterate(position: RunPosition, isAgain: boolean): Promise<number> {
    const { iteration, take, policy_version: policyVersion } = report;
    const { deadlines, evaluation } = operator.changed ?? position.config;
    const start = Date.now();
    const isDue = evaluation.every !== null && iteration > 0 && iteration % evaluation.every === 0;
    // The evaluation is of this version: the next one is not published before its end.
    const evaluated = () => (isDue ? evaluate(position, policyVersion) : Promise.resolve());
    status.enter('rollout');
    const ready = async () =>
      rollouts?.untilReady({
        reopen: isAgain || isResumed,
        seconds: deadlines.iteration,
        onChange: (rollout, until) => status.showRollout(rollout, until),
        whilePaused: () => operator.whilePaused(),
        extendedUntil: () => extendedUntil,
      });
    await watched(() => allOrNone([ready, evaluated])).catch(closeRollouts);
    await operator.whilePaused();
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
  async function closeRollouts(error: unknown): Promise<never> {
    if (rollouts && !isCancellation(error)) {
      status.waitFor('cancelled groups to close');
      await rollouts.closed();
    }
    throw error;
  }

  /** Runs work that needs engines, and repairs lost ones meanwhile. */
  function watched<T>(work: () => Promise<T>): Promise<T> {
    return pool.during(work, () => Date.now() < operator.pausedUntil);
  }

  /** Returns the settings of an evaluation: the run file with a person's latest changes. */
  function evaluatedBy({ config }: RunPosition): RunConfig {
    return operator.changed && patched('evaluation-as-configured') ? operator.changed : config;
  }

  async function evaluate(position: RunPosition, version: number): Promise<void> {
    if (Date.now() < operator.pausedUntil && patched('evaluation-waits')) await operator.whilePaused();
    const config = evaluatedBy(position);
    if (config.evaluation.tasks.length === 0) return;
    const evaluation = () =>
      executeChild(evaluatePolicy, {
        workflowId: `${runId}/eval@${version}`,
        args: [{ runId, policyVersion: version, deadlineSeconds: config.deadlines.iteration, groupSeconds: config.deadlines.group }],
        searchAttributes: attributesOf({ runId, version, phase: 'evaluation' }),
        staticSummary: `held-out tasks, policy ${version}`,
      });
    // The evaluation of a terminated execution may still be closing.
    await inTurn(evaluation);
  }

  async function finish(position: RunPosition, version: number): Promise<RunStatusReport> {
    report.policy_version = version;
    if (evaluatedBy(position).evaluation.after && version > 0) await untilDone(() => watched(() => evaluate(position, version)));
    status.enter('completed');
    await end('completed');
    return report;
  }

  async function end(as: 'completed' | 'failed' | 'cancelled', reason?: string): Promise<void> {
    operator.isEnding = true;
    await CancellationScope.nonCancellable(async () => {
      // Earlier executions may have started groups, even if this one has not come to its own.
      const { iteration, take, policy_version: policyVersion } = report;
      await (rollouts ?? new Rollouts({ runId, iteration, take, policyVersion })).cancelAll();
      await pool.settled();
      // Others wait for each of the two: one that fails must not prevent the other.
      await Promise.allSettled([store.releasePool({ runId }), store.setRunStatus({ runId, status: as, reason })]);
    });
  }

  /** Writes the run's status if it can: the store may be the cause of the block. */
  async function writeStatus(as: 'blocked' | 'running', reason?: string): Promise<void> {
    try {
      await store.setRunStatus({ runId, status: as, reason });
    } catch (error) {
      if (isCancellation(error) || (error instanceof Error && isRefusal(error))) throw error;
    }
  }

  /** Repeats `work` until it succeeds. A failure that a person must repair blocks the run; what is finished is kept, and `resume` tries again. */
  async function untilDone<T>(work: (isAgain: boolean) => Promise<T>): Promise<T> {
    for (let isAgain = false; ; isAgain = true) {
      try {
        return await work(isAgain);
      } catch (error) {
        if (isCancellation(error)) throw error;
        const before = report.phase;
        report.reason = describe(error);
        operator.block();
        status.enter('blocked');
        status.waitFor('a person: repair the cause, then resume');
        await writeStatus('blocked', report.reason);
        await operator.untilResumed();
        await writeStatus('running');
        report.reason = null;
        status.enter(before);
      }
    }
  }
}

async function loadBase(runId: string, limitSeconds: number): Promise<void> {
  const base = await gpu(limitSeconds).loadBase(await store.planBase({ runId }));
  await store.recordBase({ runId, base });
}

const isRefusal = (error: Error): boolean => error.cause instanceof ApplicationFailure && error.cause.nonRetryable === true;
const isContinueAsNew = (error: Error): boolean => error.name === 'ContinueAsNew';
