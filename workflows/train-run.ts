import {
  ApplicationFailure,
  CancellationScope,
  condition,
  continueAsNew,
  executeChild,
  getExternalWorkflowHandle,
  isCancellation,
  setHandler,
  upsertSearchAttributes,
  workflowInfo,
  type SearchAttributes,
} from '@temporalio/workflow';
import type { RunStanding } from '../activities/prepare-run.ts';
import { gpu, store, waiting } from './activities.ts';
import { evaluatePolicy } from './evaluate-policy.ts';
import { grpoIteration } from './grpo-iteration.ts';
import { groupEndedSignal, phaseSignal, resumeUpdate, statusQuery, stopUpdate, type RunStatusReport } from './messages.ts';
import { publish } from './publish-version.ts';

export type Deadlines = { trial: number; group: number; iteration: number; train: number };

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
 * `temporal workflow reset --type LastContinuedAsNew` redoes an iteration. The workflow's id is the run's.
 */
export async function trainRun(runFile: unknown, progress: RunProgress = {}): Promise<RunStatusReport> {
  const runId = workflowInfo().workflowId;
  const status: RunStatusReport = {
    run: runId,
    phase: 'preparing',
    iteration: 0,
    iterations: 0,
    take: 0,
    policy_version: 0,
    groups_ended: 0,
    groups: 0,
    trials: {},
    reason: null,
  };
  let stopping = false;
  let resumed = false;
  setHandler(statusQuery, () => status);
  setHandler(phaseSignal, ({ phase, groups }) => {
    enter(phase);
    if (groups !== undefined) Object.assign(status, { groups, groups_ended: 0, trials: {} });
  });
  setHandler(groupEndedSignal, ({ outcomes }) => {
    status.groups_ended += 1;
    for (const outcome of outcomes) status.trials[outcome] = (status.trials[outcome] ?? 0) + 1;
  });
  setHandler(stopUpdate, () => {
    stopping = true;
    return `run ${runId} stops after iteration ${status.iteration}`;
  });
  setHandler(resumeUpdate, async () => {
    if (status.phase !== 'blocked') return `run ${runId} is not blocked: ${status.phase}`;
    resumed = true;
    await condition(() => status.phase !== 'blocked');
    return `run ${runId} goes on`;
  });

  try {
    const prepare = () => store.prepareRun({ runId, runFile });
    // A bad run file fails the run at once; what goes missing later is for a person to mend.
    const standing = progress.at ? await untilDone(prepare) : await prepare();
    const { config } = standing;
    const { iteration, policyVersion } = progress.at ?? standing;
    Object.assign(status, { iteration, iterations: config.iterations, policy_version: policyVersion });
    annotate({ TrialgateRun: [runId], TrialgateIteration: [iteration], TrialgatePolicyVersion: [policyVersion] });

    let take = 0;
    if (iteration < config.iterations) {
      const opened = await store.openTake({ runId, iteration, policyVersion, resume: progress.resume ?? false });
      status.take = take = opened.take;
      await Promise.all(opened.superseded.map((id) => getExternalWorkflowHandle(id).cancel().catch(() => {})));
    }

    // A run that is redone after it ended has let go of its pool.
    if (!progress.published || !(await store.poolHas({ runId, version: policyVersion }))) {
      await untilDone(async () => {
        enter('waiting for engines');
        await waiting(POOL_LIMIT).acquirePool({ runId });
        enter('publish');
        if (policyVersion === 0) await loadBase(runId, config.deadlines.train);
        await publish({ runId, version: policyVersion });
      });
    }
    if (iteration === 0 && config.evaluation.before) await untilDone(() => evaluate(standing, policyVersion));
    if (iteration >= config.iterations) return await finish(standing, policyVersion);

    const next = await untilDone(() =>
      executeChild(grpoIteration, {
        workflowId: `${runId}/${iteration}.${take}`,
        args: [{ runId, iteration, take, policyVersion, deadlines: config.deadlines }],
        staticSummary: `iteration ${iteration}, take ${take}, from policy ${policyVersion}`,
      }),
    );
    if (stopping || iteration + 1 >= config.iterations) return await finish(standing, next);
    return await continueAsNew<typeof trainRun>(runFile, { at: { iteration: iteration + 1, policyVersion: next }, published: true });
  } catch (error) {
    if (isCancellation(error)) await end('cancelled', 'cancelled by a person');
    else if (error instanceof Error && !isContinueAsNew(error)) await end('failed', describe(error));
    throw error;
  }

  function enter(phase: string): void {
    status.phase = phase;
    annotate({ TrialgatePhase: [phase] });
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
    status.policy_version = version;
    if (standing.config.evaluation.after && version > 0) await untilDone(() => evaluate(standing, version));
    enter('completed');
    await end('completed');
    return status;
  }

  async function end(as: 'completed' | 'failed' | 'cancelled', reason?: string): Promise<void> {
    await CancellationScope.nonCancellable(async () => {
      await store.releasePool({ runId });
      await store.setRunStatus({ runId, status: as, reason });
    });
  }

  /** What a person must mend parks the run; everything that is finished is kept, and `resume` tries again. */
  async function untilDone<T>(work: () => Promise<T>): Promise<T> {
    for (;;) {
      try {
        return await work();
      } catch (error) {
        if (isCancellation(error)) throw error;
        const before = status.phase;
        resumed = false;
        status.reason = describe(error);
        enter('blocked');
        await store.setRunStatus({ runId, status: 'blocked', reason: status.reason });
        await condition(() => resumed);
        await store.setRunStatus({ runId, status: 'running' });
        status.reason = null;
        enter(before);
      }
    }
  }
}

async function loadBase(runId: string, limitSeconds: number): Promise<void> {
  const base = await gpu(limitSeconds).loadBase(await store.planBase({ runId }));
  await store.recordBase({ runId, base });
}

const annotate = (attributes: SearchAttributes): void => upsertSearchAttributes(attributes);

const isContinueAsNew = (error: Error): boolean => error.name === 'ContinueAsNew';

function describe(error: unknown): string {
  let deepest = error;
  while (deepest instanceof Error && deepest.cause instanceof Error) deepest = deepest.cause;
  return deepest instanceof ApplicationFailure || deepest instanceof Error ? deepest.message : String(deepest);
}
