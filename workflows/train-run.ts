import {
  CancellationScope,
  continueAsNew,
  executeChild,
  getExternalWorkflowHandle,
  isCancellation,
  upsertSearchAttributes,
  workflowInfo,
} from '@temporalio/workflow';
import type { RunStanding } from '../activities/prepare-run.ts';
import { gpu, store, waiting } from './activities.ts';
import { describe } from './describe.ts';
import { evaluatePolicy } from './evaluate-policy.ts';
import { grpoIteration } from './grpo-iteration.ts';
import { mendWhenAsked } from './mend-pool.ts';
import type { RunStatusReport } from './messages.ts';
import { Operator } from './operator.ts';
import { publish } from './publish-version.ts';
import { Rollouts } from './rollouts.ts';
import { RunStatus } from './run-status.ts';

/** What a run hands to its next execution. Absent when a person starts it. */
export type RunProgress = {
  /** Where to go on; absent: where the store says. */
  at?: { iteration: number; policyVersion: number };
  /** Go on in the open take instead of opening the next one. */
  resume?: boolean;
  /** The pool is known to have `at.policyVersion`. */
  published?: boolean;
};

const POOL_LIMIT = '24h';

/**
 * A training run, one iteration an execution: each continues as new, so that history stays small and
 * `temporal workflow reset --type LastContinuedAsNew` redoes an iteration. The workflow's id is the run's. Its groups may outlive an
 * execution, and with `max_staleness` an iteration.
 */
export async function trainRun(runFile: unknown, progress: RunProgress = {}): Promise<RunStatusReport> {
  const runId = workflowInfo().workflowId;
  let rollouts: Rollouts | undefined;
  const status = new RunStatus(runId, (group) => rollouts?.ended(group));
  const { report } = status;
  const operator = new Operator(runId, status);
  const mended = mendWhenAsked(runId);

  try {
    const prepare = () => store.prepareRun({ runId, runFile });
    // A bad run file fails the run at once; what goes missing later is for a person to mend.
    const standing = progress.at ? await untilDone(prepare) : await prepare();
    const { iteration, policyVersion } = progress.at ?? standing;
    Object.assign(report, { iteration, iterations: standing.config.iterations, policy_version: policyVersion });
    upsertSearchAttributes({ TrialgateRun: [runId], TrialgateIteration: [iteration], TrialgatePolicyVersion: [policyVersion] });

    let take = 0;
    if (iteration < standing.config.iterations) {
      const opened = await store.openTake({ runId, iteration, policyVersion, resume: progress.resume ?? false });
      report.take = take = opened.take;
      await Promise.all(opened.superseded.map((id) => getExternalWorkflowHandle(id).cancel().catch(() => {})));
    }

    // A run that is redone after it ended has let go of its pool.
    if (!progress.published || !(await store.poolHas({ runId, version: policyVersion }))) {
      await untilDone(async () => {
        status.enter('waiting for engines');
        await waiting(POOL_LIMIT).acquirePool({ runId });
        status.enter('publish');
        if (policyVersion === 0) await loadBase(runId, standing.config.deadlines.train);
        await publish({ runId, version: policyVersion });
      });
    }
    if (iteration === 0 && standing.config.evaluation.before) await untilDone(() => evaluate(standing, policyVersion));
    if (iteration >= standing.config.iterations) return await finish(standing, policyVersion);

    rollouts = new Rollouts({ runId, iteration, take, policyVersion });
    const next = await untilDone((isAgain) => iterate(standing, isAgain));
    const { iterations } = operator.changed ?? standing.config;
    if (operator.isStopping || iteration + 1 >= iterations) return await finish(standing, next);
    await mended();
    return await continueAsNew<typeof trainRun>(operator.changed ?? runFile, { at: { iteration: iteration + 1, policyVersion: next }, published: true });
  } catch (error) {
    if (isCancellation(error)) await end('cancelled', 'cancelled by a person');
    else if (error instanceof Error && !isContinueAsNew(error)) await end('failed', describe(error));
    throw error;
  }

  /** Groups from the version before, then a step on them. Returns the version that it made. */
  async function iterate(standing: RunStanding, isAgain: boolean): Promise<number> {
    const { iteration, take, policy_version: policyVersion } = report;
    const { deadlines, evaluation } = operator.changed ?? standing.config;
    const start = Date.now();
    const isDue = evaluation.every !== null && iteration > 0 && iteration % evaluation.every === 0;
    // What is evaluated is this version: the next one is not published before.
    const evaluated = isDue ? evaluate(standing, policyVersion) : Promise.resolve();
    status.enter('rollout');
    const ready = rollouts?.untilReady({
      reopen: isAgain || progress.resume === true,
      seconds: deadlines.iteration,
      onChange: (rollout) => status.sees(rollout, start + deadlines.iteration * 1000),
      mayStart: () => operator.untilUnpaused(),
    });
    await Promise.all([ready, evaluated]);
    await operator.untilUnpaused();
    return executeChild(grpoIteration, {
      workflowId: `${runId}/${iteration}.${take}`,
      args: [{ runId, iteration, take, trainSeconds: deadlines.train, seconds: { rollout: (Date.now() - start) / 1000 } }],
      staticSummary: `iteration ${iteration}, take ${take}, from policy ${policyVersion}`,
    });
  }

  async function evaluate({ config }: RunStanding, version: number): Promise<void> {
    if (config.evaluation.tasks.length === 0) return;
    await executeChild(evaluatePolicy, {
      workflowId: `${runId}/eval@${version}`,
      args: [{ runId, policyVersion: version, deadlineSeconds: config.deadlines.iteration }],
      staticSummary: `held-out tasks, policy ${version}`,
    });
  }

  async function finish(standing: RunStanding, version: number): Promise<RunStatusReport> {
    report.policy_version = version;
    if (standing.config.evaluation.after && version > 0) await untilDone(() => evaluate(standing, version));
    status.enter('completed');
    await end('completed');
    return report;
  }

  async function end(as: 'completed' | 'failed' | 'cancelled', reason?: string): Promise<void> {
    await CancellationScope.nonCancellable(async () => {
      await rollouts?.cancelAll();
      await mended();
      await store.releasePool({ runId });
      await store.setRunStatus({ runId, status: as, reason });
    });
  }

  /** What a person must mend parks the run; everything that is finished is kept, and `resume` tries again. */
  async function untilDone<T>(work: (isAgain: boolean) => Promise<T>): Promise<T> {
    for (let isAgain = false; ; isAgain = true) {
      try {
        return await work(isAgain);
      } catch (error) {
        if (isCancellation(error)) throw error;
        const before = report.phase;
        report.reason = describe(error);
        const untilResumed = operator.blocks();
        status.enter('blocked');
        status.waitFor('a person: mend that, then resume');
        await store.setRunStatus({ runId, status: 'blocked', reason: report.reason });
        await untilResumed();
        await store.setRunStatus({ runId, status: 'running' });
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

const isContinueAsNew = (error: Error): boolean => error.name === 'ContinueAsNew';
