import { WorkflowExecutionAlreadyStartedError } from '@temporalio/common';
import {
  ApplicationFailure,
  CancellationScope,
  ParentClosePolicy,
  sleep,
  startChild,
  workflowInfo,
} from '@temporalio/workflow';
import type { ReplicaReport } from '../core/gpu-contract.ts';
import { gpu, store } from './activities.ts';
import { attributesOf } from './attributes.ts';

const PUBLISH_LIMIT_SECONDS = 1800;
/** An engine that dies while it loads weights is up again for the next try, which waits for it. */
const TRIES = 3;
/** The longest time of a publication that has its turn, while the store answers. */
export const PUBLICATION_SECONDS = TRIES * PUBLISH_LIMIT_SECONDS;

export type Publication = {
  runId: string;
  version: number;
  /** The version that all replicas go back to when too few confirm. */
  fallback?: number;
  /** True for a repair: only lost replicas get the version, the others go on. */
  isMend?: boolean;
};

/** Reports what a publication waits for and for how many seconds at most: first its turn, which has no limit of its own, then its engines. */
type ReportWait = (waitsFor: string, seconds?: number) => Promise<void>;
export const enginesOf = (version: number) => [`engines to confirm version ${version}`, PUBLICATION_SECONDS] as const;
const TURN = 'its turn at the engines: an evaluation on demand, a repair or an earlier publication has them';

/**
 * Publishes in a workflow of its own, one at a time for a run. That workflow completes even if the run is terminated, so that the engines
 * are never left paused. `reportWait` reports when it waits for its turn, and when it has that.
 */
export async function publish(publication: Publication, reportWait: ReportWait): Promise<void> {
  const workflowId = poolHolder(publication.runId);
  if (workflowInfo().workflowId === workflowId) return void (await publishVersion(publication));
  const start = () =>
    startChild(publishVersion, {
      workflowId,
      args: [publication],
      parentClosePolicy: ParentClosePolicy.ABANDON,
      searchAttributes: attributesOf({ ...publication, phase: 'publish' }),
      staticSummary: `policy ${publication.version}`,
    });
  let waited = false;
  const child = await inTurn(start, async () => {
    waited = true;
    await reportWait(TURN);
  });
  const done = child.result();
  // A report that fails does not end the wait for a publication that has begun.
  if (waited) await Promise.allSettled([reportWait(...enginesOf(publication.version)), done]);
  await done;
}

/** Returns the id of the workflow that decides which version the run's pool has: a publication, or an evaluation on demand. */
export const poolHolder = (runId: string): string => `${runId}/publish`;

/** Starts a child as soon as no other workflow uses its id. Every workflow that uses the id ends in a bounded time. */
export async function inTurn<T>(
  start: () => Promise<T>,
  whenHeld: () => Promise<void> = () => Promise.resolve(),
): Promise<T> {
  for (let tried = 0; ; tried++) {
    try {
      return await start();
    } catch (error) {
      if (!(error instanceof WorkflowExecutionAlreadyStartedError)) throw error;
      if (tried === 0) await whenHeld();
      await sleep(Math.min(30_000, 1000 * 2 ** tried));
    }
  }
}

/**
 * Publishes a version to the pool: out of rotation → weights → read back → into rotation. When fewer replicas confirm than the run needs,
 * all go back to the version before, and the failure has each one's answer. Returns the number of replicas that confirmed.
 */
export async function publishVersion({ runId, version, fallback, isMend }: Publication): Promise<number> {
  try {
    return await confirm({ runId, version, isMend });
  } catch (error) {
    // After any failure, also one without an answer, no replica stays between two versions.
    if (fallback !== undefined)
      await CancellationScope.nonCancellable(() => bring({ runId, version: fallback })).catch(() => {});
    throw error;
  }
}

async function confirm(publication: Publication): Promise<number> {
  // A repair has no version to go back to, so each of its tries completes even when it is cancelled.
  const attempt = () =>
    publication.isMend ? CancellationScope.nonCancellable(() => bring(publication)) : bring(publication);
  let outcome = await attempt();
  for (let tried = 1; outcome.confirmed < outcome.needed && tried < TRIES; tried++) {
    await sleep(1000 * 2 ** tried);
    outcome = await attempt();
  }
  const { confirmed, needed, reports } = outcome;
  if (confirmed >= needed) return confirmed;
  const why = reports
    .filter((report) => !report.ok)
    .map((report) => `${report.url}: ${report.error ?? 'did not confirm'}`);
  throw ApplicationFailure.create({
    type: 'publication_failed',
    message: `version ${publication.version} was confirmed by ${confirmed} of ${needed} replicas. ${why.join('; ')}`,
  });
}

async function bring({
  runId,
  version,
  isMend,
}: Publication): Promise<{ confirmed: number; needed: number; reports: ReplicaReport[] }> {
  const { needed, ...input } = await store.beginPublication({ runId, version, isMend });
  const { replicas: reports } = await gpu(PUBLISH_LIMIT_SECONDS).publishPolicy(input);
  const { confirmed } = await store.endPublication({ runId, version, reports, isMend });
  return { confirmed, needed, reports };
}
