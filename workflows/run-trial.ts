import { CancellationScope, getExternalWorkflowHandle, isCancellation, sleep, type ExternalWorkflowHandle } from '@temporalio/workflow';
import type { GroupPlan } from '../activities/group-plan.ts';
import type { GroupLimits } from '../activities/open-group.ts';
import type { AgentEnd } from '../activities/run-agent.ts';
import type { Sealing } from '../activities/seal-trial.ts';
import type { Outcome } from '../store/tables/trials.ts';
import { onHost, store, waiting } from './activities.ts';
import { engineTroubleSignal } from './messages.ts';

type Trial = { trialId: string; member: number; group: GroupPlan; limits: GroupLimits; owner: string };
type Ending = Omit<Sealing, 'trialId' | 'attempt' | 'host'>;

/**
 * One trial: open → sandbox → agent → verify → seal, under a new attempt after each failure that is not its own.
 * Its scope is cancelled at the group's deadline (it ends as `truncated`) or with the run (`cancelled`).
 */
export async function runTrial(trial: Trial, runCancelled: () => boolean): Promise<Outcome> {
  const { trialId, group, limits } = trial;
  let attempt = 1;
  try {
    for (let tries = 1; ; tries++, attempt++) {
      const opened = await store.openTrial({ trialId, attempt, member: trial.member, group });
      if (opened.finished) return opened.finished;
      attempt = opened.attempt;
      const outcome = await runAttempt(trial, attempt, runCancelled);
      if (outcome !== 'infra_error' || tries >= limits.maxAttempts) return outcome;
      await mendPool(getExternalWorkflowHandle(trial.owner), group.runId);
      await sleep(1000 * 2 ** Math.min(tries, 5));
    }
  } catch (error) {
    if (!isCancellation(error)) throw error;
    const outcome = runCancelled() ? 'cancelled' : 'truncated';
    await seal(trialId, attempt, { outcome, reason: 'cut between two attempts' });
    return outcome;
  }
}

async function runAttempt({ trialId, group, limits }: Trial, attempt: number, runCancelled: () => boolean): Promise<Outcome> {
  let host: string | undefined;
  let end: AgentEnd;
  try {
    const sandbox = await waiting(limits.groupSeconds * 1000).startSandbox({ trialId, attempt, task: group.task });
    host = sandbox.host;
    end = await onHost(sandbox.host, limits.trialSeconds).runAgent({ trialId, attempt, seconds: limits.trialSeconds, agent: group.agent });
  } catch (error) {
    // A worker that shuts down cancels its activities too: only this scope tells whether the trial was cut.
    if (!CancellationScope.current().consideredCancelled) return seal(trialId, attempt, { outcome: 'infra_error', reason: describe(error) }, host);
    if (runCancelled()) return seal(trialId, attempt, { outcome: 'cancelled', reason: 'the run was cancelled' }, host);
    end = { outcome: 'truncated', reason: 'the group reached its deadline', seconds: {} };
  }
  const { outcome, reason } = end;
  if (outcome === 'infra_error' || host === undefined) return seal(trialId, attempt, { ...end, outcome: outcome ?? 'infra_error' }, host);
  try {
    // What a cut trial left behind is still verified, past the deadline too.
    const verdict = await CancellationScope.nonCancellable(() =>
      onHost(host, limits.trialSeconds).verifyTrial({ trialId, attempt, seconds: limits.trialSeconds }),
    );
    const seconds = { ...end.seconds, ...verdict.seconds };
    return await seal(trialId, attempt, { reason, ...verdict, outcome: verdict.outcome ?? outcome ?? 'scored', seconds }, host);
  } catch (error) {
    return seal(trialId, attempt, { outcome: 'infra_error', reason: describe(error) }, host);
  }
}

async function seal(trialId: string, attempt: number, ending: Ending, host?: string): Promise<Outcome> {
  await CancellationScope.nonCancellable(async () => {
    await store.sealTrial({ trialId, attempt, host, ...ending });
    if (host === undefined) return;
    const closing = onHost(host, 0).closeSandbox({ trialId, attempt }).catch(() => {});
    // A host that is lost never answers, and a trial that is to be tried again does not wait for it.
    if (ending.outcome === 'cancelled') await closing;
  });
  return ending.outcome;
}

/** Tells the pool's owner, and waits a while until it is whole again; the next attempt finds out if it is not. */
async function mendPool(owner: ExternalWorkflowHandle, runId: string): Promise<void> {
  try {
    await owner.signal(engineTroubleSignal);
    await waiting('3m').awaitPool({ runId });
  } catch (error) {
    if (isCancellation(error)) throw error;
  }
}

function describe(error: unknown): string {
  const messages: string[] = [];
  for (let at = error; at instanceof Error; at = at.cause) messages.push(at.message);
  return messages.at(-1) ?? String(error);
}
