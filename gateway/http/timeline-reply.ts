import { epochSeconds } from '../../core/epoch-seconds.ts';
import { UNCLAIMED_TASK } from '../../core/run-config/rollouts.ts';
import type { RunHead } from '../../store/queries/read-run-head.ts';
import type { TimelineGroup, TimelineTake, TimelineTrial } from '../../store/queries/read-timeline.ts';
import type { Timeline } from './openapi/run-schemas.ts';
import { whyStepWaits } from './why-step-waits.ts';

/** Returns the reply of the timeline's route. */
export function timelineOf(
  run: RunHead,
  take: TimelineTake,
  { groups, next }: { groups: readonly TimelineGroup[]; next: number | null },
): Timeline {
  const wasResumed =
    run.resumedAt && run.resumedAt >= take.openedAt && (!take.endedAt || run.resumedAt <= take.endedAt);
  return {
    run_status: run.status,
    iteration: take.iteration,
    take: take.take,
    newest_take: take.newest,
    status: take.status,
    policy_version: take.policyVersion,
    trained_version: take.version,
    skipped: take.skipped,
    opened_at: epochSeconds(take.openedAt),
    ended_at: secondsOrNull(take.endedAt),
    batch_at: secondsOrNull(take.batchAt),
    trained_at: secondsOrNull(take.trainedAt),
    resumed_at: wasResumed ? secondsOrNull(run.resumedAt) : null,
    publications: take.publications.map(({ version, replicas, first, last }) => ({
      version,
      replicas,
      first_at: first,
      last_at: last,
    })),
    waits_for: take.trials && whyStepWaits(run, take),
    all_trials: take.trials && { running: take.trials.running, last_at: take.trials.lastAt },
    now: take.now,
    groups: groups.map((group) => ({
      group_id: group.id,
      task: group.task,
      agent: group.trials.find(({ agent }) => agent !== null)?.agent ?? group.agent,
      size: group.size,
      dropped: group.dropped,
      is_unclaimed: group.claim === null && group.task === UNCLAIMED_TASK,
      claimed_at: secondsOrNull(group.claimedAt),
      opened_at: epochSeconds(group.openedAt),
      deadline_at: secondsOrNull(group.deadlineAt),
      ended_at: secondsOrNull(group.endedAt),
      trials: group.trials.map(trialOf),
    })),
    next_offset: next,
  };
}

const trialOf = (trial: TimelineTrial): Timeline['groups'][number]['trials'][number] => ({
  trial_id: trial.id,
  trial_index: trial.trialIndex,
  agent: trial.agent,
  outcome: trial.outcome,
  has_outcome: trial.hasOutcome,
  reward: trial.reward,
  calls: trial.calls,
  tokens: trial.tokens,
  completed_at: secondsOrNull(trial.completedAt),
  call_since: secondsOrNull(trial.callSince),
  attempts: trial.attempts.map((attempt) => ({
    attempt: attempt.attempt,
    outcome: attempt.outcome,
    reason: attempt.reason,
    evidence: attempt.evidence,
    host: attempt.host,
    opened_at: epochSeconds(attempt.openedAt),
    ended_at: secondsOrNull(attempt.endedAt),
    seconds: attempt.seconds,
  })),
});

const secondsOrNull = (at: Date | null): number | null => at && epochSeconds(at);
