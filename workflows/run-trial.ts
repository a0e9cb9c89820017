import {
  CancellationScope,
  condition,
  getExternalWorkflowHandle,
  isCancellation,
  patched,
  sleep,
  type ExternalWorkflowHandle,
} from '@temporalio/workflow';
import type { GroupPlan } from '../activities/rollout/group-plan.ts';
import type { GroupLimits } from '../activities/rollout/open-group.ts';
import type { OpenedTrial } from '../activities/trial/open-trial.ts';
import type { Wait } from '../activities/trial/read-wait.ts';
import type { AgentEnd } from '../activities/trial/run-agent.ts';
import type { SealTrialInput } from '../activities/trial/seal-trial.ts';
import type { Outcome } from '../store/tables/trials.ts';
import { onHost, opening, store, waiting } from './activities.ts';
import { describe } from './describe.ts';
import { engineTroubleSignal, type TrialState } from './messages.ts';

/** The reason why a trial was cut. At its deadline it is verified as it is; for any other reason it is cancelled, for good unless its run was cancelled. */
type Cut = 'deadline' | 'dropped' | 'stale' | 'skipped' | 'run';
export type TrialRun = {
  readonly trialId: string;
  readonly trialIndex: number;
  readonly group: GroupPlan;
  readonly limits: GroupLimits;
  readonly owner: string;
  /** Cancelled when the trial is cut. */
  readonly scope: CancellationScope;
  cut: Cut | null;
  outcome: Outcome | null;
  /** The state while the trial has no outcome. */
  state: TrialState;
  /** The deadline of the current attempt's agent, in milliseconds since the epoch. */
  deadline: number | null;
  /** The milliseconds that a person added while the trial waited, beyond the time of each attempt. */
  more: number;
};
/** An attempt as it is sealed. One that was not opened has no host. */
type Attempt = Pick<SealTrialInput, 'trialId' | 'attempt' | 'host' | 'unopened'>;
type AttemptKey = { trialId: string; attempt: number };
type OpenAttempt = AttemptKey & { host: string };
type AttemptResult = Omit<SealTrialInput, keyof Attempt>;

const REASONS: Record<Cut, string> = {
  deadline: 'the group reached its deadline',
  dropped: 'enough trials of the group had ended',
  stale: 'older than the run allows',
  skipped: 'skipped by a person',
  run: 'the run ended or was cancelled',
};

/**
 * Runs one trial: open (with its sandbox) → agent → verify → seal, under a new attempt after each failure that is not its own. Its scope
 * is cancelled when it is cut.
 */
export async function runTrial(trial: TrialRun): Promise<Outcome> {
  const { trialId, group, limits } = trial;
  let attempt = 1;
  try {
    return await trial.scope.run(async () => {
      for (let tries = 1; ; tries++, attempt++) {
        trial.state = 'opening';
        const opened = await openTrial(trial, attempt);
        if (opened?.finished) return opened.finished;
        attempt = opened?.attempt ?? attempt;
        const outcome = opened ? await runAttempt(trial, { trialId, attempt, host: opened.host }) : 'infra_error';
        if (outcome !== 'infra_error' || tries >= limits.maxAttempts) return outcome;
        if (trial.cut === 'deadline' && patched('engine-waits')) return outcome;
        trial.state = 'waiting';
        await requestRepair(getExternalWorkflowHandle(trial.owner), group.runId);
        await sleep(1000 * 2 ** Math.min(tries, 5));
      }
    });
  } catch (error) {
    if (!isCancellation(error)) throw error;
    return seal(
      { trialId, unopened: unopenedOf(trial) },
      trial.cut === 'deadline' ? { outcome: 'truncated', reason: 'cut between two attempts' } : cancelled(trial),
    );
  }
}

/** A trial that a person skipped is not tried again after a resume, even if nobody has opened it. */
export const unopenedOf = ({ cut, group, trialIndex }: TrialRun): Attempt['unopened'] =>
  cut === 'skipped' ? { group, trialIndex } : undefined;

export const cancelled = ({ cut }: TrialRun): AttemptResult => ({
  outcome: 'cancelled',
  reason: REASONS[cut ?? 'run'],
  final: cut !== null && cut !== 'run',
});

/** Opens an attempt. Returns null when no host could, which is an infrastructure error. */
async function openTrial(
  { trialId, trialIndex, group, limits }: TrialRun,
  attempt: number,
): Promise<OpenedTrial | null> {
  try {
    return await opening(limits.groupSeconds * 1000, trialId).openTrial({ trialId, attempt, trialIndex, group });
  } catch (error) {
    if (CancellationScope.current().consideredCancelled) throw error;
    await seal({ trialId }, { outcome: 'infra_error', reason: describe(error) });
    return null;
  }
}

async function runAttempt(trial: TrialRun, attempt: OpenAttempt): Promise<Outcome> {
  const { host, ...key } = attempt;
  const here = onHost(host, `${key.trialId}, attempt ${key.attempt}`);
  trial.state = 'agent';
  const since = Date.now();
  let end: AgentEnd;
  try {
    end = await withinDeadline(trial, key, () => here.runAgent({ ...key, agent: trial.group.agent }));
  } catch (error) {
    // A worker that shuts down cancels its activities too, so only this scope tells whether the trial was cut.
    if (!CancellationScope.current().consideredCancelled)
      return abandon(attempt, { outcome: 'infra_error', reason: describe(error) });
    if (trial.cut !== 'deadline') return abandon(attempt, cancelled(trial));
    const wait = await CancellationScope.nonCancellable(() => waitOf(key));
    if (wait.isExcuse && wait.seconds * 2000 >= Date.now() - since) return abandon(attempt, excused(wait));
    end = { outcome: 'truncated', reason: REASONS.deadline, seconds: {} };
  }
  const { outcome, reason } = end;
  if (outcome === 'infra_error') return abandon(attempt, { ...end, outcome });
  trial.state = 'verifying';
  try {
    // The work of a cut trial is verified too, also past the deadline.
    const verdict = await CancellationScope.nonCancellable(() =>
      here.verifyTrial({ ...key, seconds: trial.limits.trialSeconds }),
    );
    const seconds = { ...end.seconds, ...verdict.seconds };
    // A trial that is cut while it is verified does not count either.
    if (trial.cut !== null && trial.cut !== 'deadline') return await seal(attempt, { ...cancelled(trial), seconds });
    return await seal(attempt, { reason, ...verdict, outcome: verdict.outcome ?? outcome ?? 'scored', seconds });
  } catch (error) {
    return abandon(attempt, { outcome: 'infra_error', reason: describe(error) });
  }
}

/**
 * Lets the agent run until the trial's deadline, which a person may move, and which the agent's waits for its engine move up to a limit. An
 * agent that uses up its own time is stopped, and its work is verified. If own time is left at the limit, the trial gets another attempt.
 */
async function withinDeadline(trial: TrialRun, key: AttemptKey, run: () => Promise<AgentEnd>): Promise<AgentEnd> {
  // A person may have extended the trial before its agent began.
  trial.deadline = Math.max(trial.deadline ?? 0, Date.now() + trial.limits.trialSeconds * 1000 + trial.more);
  let isOver = false;
  let excuse: Wait | null = null;
  const { trialSeconds, trialAtMostSeconds = trialSeconds } = trial.limits;
  const most = (trialAtMostSeconds - trialSeconds) * 1000;
  let granted = 0;
  const agent = new CancellationScope();
  const running = agent.run(run);
  const watch = new CancellationScope();
  void watch
    .run(async () => {
      for (;;) {
        for (let until = trial.deadline ?? 0; Date.now() < until; until = trial.deadline ?? 0) {
          await condition(() => trial.deadline !== until, until - Date.now());
        }
        const asked = trial.deadline;
        const wait = await waitOf(key);
        // A person may have moved it meanwhile.
        if (trial.deadline !== asked) continue;
        const more = Math.min(wait.seconds * 1000, most) - granted;
        if (more < LEAST_GRANT_MS) {
          // At the limit, what it waited beyond that is what is left of its own time.
          const left = wait.seconds * 1000 - most;
          if (wait.isExcuse && left >= Math.min(LEAST_GRANT_MS, trialSeconds * 100)) excuse = wait;
          break;
        }
        granted += more;
        trial.deadline = (trial.deadline ?? Date.now()) + more;
      }
      isOver = true;
      agent.cancel();
    })
    .catch(() => {});
  try {
    return await running;
  } catch (error) {
    if (!isOver || CancellationScope.current().consideredCancelled || !isCancellation(error)) throw error;
    const spent = { agent: trialSeconds + granted / 1000 };
    if (excuse) return { ...excused(excuse), seconds: spent };
    return { outcome: 'timed_out', reason: 'the agent used up its time', seconds: spent };
  } finally {
    watch.cancel();
  }
}

const LEAST_GRANT_MS = 1000;
const NO_WAIT: Wait = { seconds: 0, isExcuse: false };

/** Reads how long an attempt has waited for its engine. If the store does not say so soon, it has not waited. */
async function waitOf(key: AttemptKey): Promise<Wait> {
  if (!patched('engine-waits')) return NO_WAIT;
  try {
    return await waiting('30s').readWait(key);
  } catch (error) {
    if (isCancellation(error)) throw error;
    return NO_WAIT;
  }
}

const excused = ({ seconds }: Wait) =>
  ({
    outcome: 'infra_error',
    evidence: 'engine',
    reason: `its time was up while it waited for the engine, ${Math.round(seconds)} s in all: \`npx trialgate status\` says how fast the engines are`,
  }) as const;

export async function seal(attempt: Attempt, ending: AttemptResult): Promise<Outcome> {
  await CancellationScope.nonCancellable(() => store.sealTrial({ ...attempt, ...ending }));
  return ending.outcome;
}

/** Ends an attempt that nobody will verify, and releases its sandbox. */
async function abandon(attempt: OpenAttempt, ending: AttemptResult): Promise<Outcome> {
  return CancellationScope.nonCancellable(async () => {
    const outcome = await seal(attempt, ending);
    const { host, ...key } = attempt;
    const closing = onHost(host, key.trialId)
      .closeSandbox(key)
      .catch(() => {});
    // A lost host never answers, and a trial that is tried again does not wait for it.
    if (outcome === 'cancelled') await closing;
    return outcome;
  });
}

/** Asks the pool's owner for a repair and waits a while until the pool is whole. If it is not, the next attempt finds out. */
async function requestRepair(owner: ExternalWorkflowHandle, runId: string): Promise<void> {
  try {
    await owner.signal(engineTroubleSignal);
    await waiting('3m').awaitPool({ runId });
  } catch (error) {
    if (isCancellation(error)) throw error;
  }
}
