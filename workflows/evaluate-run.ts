import {
  ApplicationFailure,
  CancelledFailure,
  CancellationScope,
  executeChild,
  ParentClosePolicy,
  sleep,
  upsertSearchAttributes,
} from '@temporalio/workflow';
import type { EvaluationRequest } from '../activities/evaluation/plan-evaluation-on-demand.ts';
import { store } from './activities.ts';
import { attributesOf } from './attributes.ts';
import { inTurn, poolHolder, publishVersion } from './publish-version.ts';
import { runGroups } from './run-groups.ts';

export type EvaluationDone = { runId: string; /** The same as in `show RUN --json`. */ id: string; version: number };

const POOL_LIMIT_MS = 86_400_000;
/** The shortest and the longest pause between tries. Each try adds some 14 events to the history. */
const [BUSY_MS, BUSIEST_MS] = [20_000, 300_000];

/** An evaluation that a person or a schedule asks for. It waits until no other workflow decides which version the run's pool has. */
export async function evaluateRun(request: EvaluationRequest): Promise<EvaluationDone> {
  upsertSearchAttributes(attributesOf({ runId: request.runId, phase: 'evaluation' }));
  const turn = () =>
    inTurn(() =>
      executeChild(evaluateVersion, {
        workflowId: poolHolder(request.runId),
        args: [request],
        parentClosePolicy: ParentClosePolicy.REQUEST_CANCEL,
        staticSummary: 'held-out tasks, on demand',
      }),
    );
  const until = Date.now() + POOL_LIMIT_MS;
  for (let pause = BUSY_MS; ; pause = Math.min(2 * pause, BUSIEST_MS)) {
    try {
      return await turn();
    } catch (error) {
      // The engines may be busy until the run's own publication has had its turn, so this gives its turn up while it waits.
      if (!isBusy(error) || Date.now() >= until) throw error;
      await sleep(pause);
    }
  }
}

function isBusy(error: unknown): boolean {
  for (let at = error; at instanceof Error; at = at.cause)
    if (at instanceof ApplicationFailure && at.type === 'pool_busy') return true;
  return false;
}

/** Samples held-out tasks from one version. Until it has ended no other version is published to the run's pool. */
export async function evaluateVersion(request: EvaluationRequest): Promise<EvaluationDone> {
  const { runId } = request;
  try {
    const { version, published } = await store.borrowPool({ runId, version: request.version });
    upsertSearchAttributes(attributesOf({ runId, version, phase: 'evaluation' }));
    const { id, plans, deadlineSeconds } = await store.planEvaluationOnDemand({ ...request, version });
    if (!published) await publishVersion({ runId, version });
    await runGroups(runId, plans, deadlineSeconds);
    // A cancelled evaluation comes here too, after its groups have sealed their trials.
    if (CancellationScope.current().consideredCancelled) throw new CancelledFailure(`${id} was cancelled`);
    return { runId, id, version };
  } finally {
    await CancellationScope.nonCancellable(() => store.returnPool({ runId }));
  }
}
