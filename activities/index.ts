import { acquirePool, releasePool, returnPool } from './acquire-pool.ts';
import { assembleBatch } from './assemble-batch.ts';
import { awaitClosed } from './await-closed.ts';
import { awaitGroup } from './await-group.ts';
import { checkEvaluation } from './check-evaluation.ts';
import { awaitPool, hasLostReplica, missingVersion, poolHas } from './check-pool.ts';
import { borrowPool } from './borrow-pool.ts';
import { closeSandbox } from './close-sandbox.ts';
import { closeTake } from './close-take.ts';
import { configureRun } from './configure-run.ts';
import type { Deps } from './deps.ts';
import { endGroup } from './end-group.ts';
import { extendGroup } from './extend-group.ts';
import { findOpenTrial } from './find-open-trial.ts';
import { listRunningGroups } from './list-running-groups.ts';
import { openGroup } from './open-group.ts';
import { openTake } from './open-take.ts';
import { openTrial } from './open-trial.ts';
import { planBase } from './plan-base.ts';
import { planEvaluation } from './plan-evaluation.ts';
import { planGroups } from './plan-groups.ts';
import { planEvaluationOnDemand } from './plan-evaluation-on-demand.ts';
import { prepareRun } from './prepare-run.ts';
import { beginPublication, endPublication } from './publication.ts';
import { recordBase, recordVersion } from './record-version.ts';
import { runAgent } from './run-agent.ts';
import { sealTrial } from './seal-trial.ts';
import { setRunStatus } from './set-run-status.ts';
import { verifyTrial } from './verify-trial.ts';

/**
 * Every activity in TypeScript. `cli/worker.ts` assigns them to task queues: `openTrial` to `sandboxes`; `runAgent`, `verifyTrial` and
 * `closeSandbox` to the queue of the host that has the sandbox; all others to `trialgate`.
 */
export const createActivities = (deps: Deps) => ({
  acquirePool: acquirePool(deps),
  assembleBatch: assembleBatch(deps),
  awaitClosed: awaitClosed(deps),
  awaitGroup: awaitGroup(deps),
  awaitPool: awaitPool(deps),
  beginPublication: beginPublication(deps),
  borrowPool: borrowPool(deps),
  checkEvaluation: checkEvaluation(deps),
  closeTake: closeTake(deps),
  configureRun: configureRun(deps),
  endGroup: endGroup(deps),
  endPublication: endPublication(deps),
  extendGroup: extendGroup(deps),
  findOpenTrial: findOpenTrial(deps),
  hasLostReplica: hasLostReplica(deps),
  listRunningGroups: listRunningGroups(deps),
  missingVersion: missingVersion(deps),
  openGroup: openGroup(deps),
  openTake: openTake(deps),
  openTrial: openTrial(deps),
  planBase: planBase(deps),
  planEvaluation: planEvaluation(deps),
  planEvaluationOnDemand: planEvaluationOnDemand(deps),
  planGroups: planGroups(deps),
  poolHas: poolHas(deps),
  prepareRun: prepareRun(deps),
  recordBase: recordBase(deps),
  recordVersion: recordVersion(deps),
  releasePool: releasePool(deps),
  returnPool: returnPool(deps),
  sealTrial: sealTrial(deps),
  setRunStatus: setRunStatus(deps),
  runAgent: runAgent(deps),
  verifyTrial: verifyTrial(deps),
  closeSandbox: closeSandbox(deps),
});

export type Activities = ReturnType<typeof createActivities>;
