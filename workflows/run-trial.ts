import { CancellationScope, getExternalWorkflowHandle, isCancellation, sleep, type ExternalWorkflowHandle } from '@temporalio/workflow';
import type { GroupPlan } from '../activities/group-plan.ts';
import type { GroupLimits } from '../activities/open-group.ts';
import type { OpenedTrial } from '../activities/open-trial.ts';
import type { AgentEnd } from '../activities/run-agent.ts';
import type { Sealing } from '../activities/seal-trial.ts';
import type { Outcome } from '../store/tables/trials.ts';
import { onHost, opening, store, waiting } from './activities.ts';
import { engineTroubleSignal } from './messages.ts';

type Trial = { trialId: string; member: number; group: GroupPlan; limits: GroupLimits; owner: string };
/** One that was not opened has no host. */
type Attempt = Pick<Sealing, 'trialId' | 'attempt' | 'host'>;
type Opened = Required<Attempt>;
type Ending = Omit<Sealing, keyof Attempt>;

/**
 * One trial: open (with its sandbox) → agent → verify → seal, under a new attempt after each failure that is not its own.
 * Its scope is cancelled at the group's deadline (it ends as `truncated`) or with the run (`cancelled`).
 */
export async function runTrial(trial: Trial, runCancelled: () => boolean): Promise<Outcome> {
  const { trialId, group, limits } = trial;
  let attempt = 1;
  try {
    for (let tries = 1; ; tries++, attempt++) {
      const opened = await openTrial(trial, attempt);
      if (opened?.finished) return opened.finished;
      attempt = opened?.attempt ?? attempt;
      const outcome = opened ? await runAttempt(trial, { trialId, attempt, host: opened.host }, runCancelled) : 'infra_error';
      if (outcome !== 'infra_error' || tries >= limits.maxAttempts) return outcome;
      await mendPool(getExternalWorkflowHandle(trial.owner), group.runId);
      await sleep(1000 * 2 ** Math.min(tries, 5));
    }
  } catch (error) {
    if (!isCancellation(error)) throw error;
    const outcome = runCancelled() ? 'cancelled' : 'truncated';
    await seal({ trialId, attempt }, { outcome, reason: 'cut between two attempts' });
    return outcome;
  }
}

/** Null when no host could: an infrastructure failure. */
async function openTrial({ trialId, member, group, limits }: Trial, attempt: number): Promise<OpenedTrial | null> {
  try {
    return await opening(limits.groupSeconds * 1000).openTrial({ trialId, attempt, member, group });
  } catch (error) {
    if (CancellationScope.current().consideredCancelled) throw error;
    await seal({ trialId, attempt }, { outcome: 'infra_error', reason: describe(error) });
    return null;
  }
}

async function runAttempt({ group, limits }: Trial, attempt: Opened, runCancelled: () => boolean): Promise<Outcome> {
  const { host, ...key } = attempt;
  const here = onHost(host, limits.trialSeconds);
  let end: AgentEnd;
  try {
    end = await here.runAgent({ ...key, seconds: limits.trialSeconds, agent: group.agent });
  } catch (error) {
    // A worker that shuts down cancels its activities too: only this scope tells whether the trial was cut.
    if (!CancellationScope.current().consideredCancelled) return abandon(attempt, { outcome: 'infra_error', reason: describe(error) });
    if (runCancelled()) return abandon(attempt, { outcome: 'cancelled', reason: 'the run was cancelled' });
    end = { outcome: 'truncated', reason: 'the group reached its deadline', seconds: {} };
  }
  const { outcome, reason } = end;
  if (outcome === 'infra_error') return abandon(attempt, { ...end, outcome });
  try {
    // What a cut trial left behind is still verified, past the deadline too.
    const verdict = await CancellationScope.nonCancellable(() => here.verifyTrial({ ...key, seconds: limits.trialSeconds }));
    const seconds = { ...end.seconds, ...verdict.seconds };
    return await seal(attempt, { reason, ...verdict, outcome: verdict.outcome ?? outcome ?? 'scored', seconds });
  } catch (error) {
    return abandon(attempt, { outcome: 'infra_error', reason: describe(error) });
  }
}

async function seal(attempt: Attempt, ending: Ending): Promise<Outcome> {
  await CancellationScope.nonCancellable(() => store.sealTrial({ ...attempt, ...ending }));
  return ending.outcome;
}

/** Ends an attempt that nobody will verify, and gives its sandbox back. */
async function abandon(attempt: Opened, ending: Ending): Promise<Outcome> {
  return CancellationScope.nonCancellable(async () => {
    const outcome = await seal(attempt, ending);
    const { host, ...key } = attempt;
    const closing = onHost(host, 0).closeSandbox(key).catch(() => {});
    // A host that is lost never answers, and a trial that is to be tried again does not wait for it.
    if (outcome === 'cancelled') await closing;
    return outcome;
  });
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
