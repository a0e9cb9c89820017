import { ActivityFailure, TimeoutFailure } from '@temporalio/workflow';

/** Returns the first cause of a failure: Temporal wraps it once for each workflow and activity that it passed through. */
export function innermost(error: unknown): unknown {
  let at = error;
  while (at instanceof Error && at.cause instanceof Error) at = at.cause;
  return at;
}

/** Returns the message of a failure's first cause. */
export function describe(error: unknown): string {
  const cause = innermost(error);
  if (cause instanceof TimeoutFailure) return ofTimeout(cause, activityOf(error));
  return cause instanceof Error ? cause.message : String(cause);
}

/** Returns the name of the activity that failed, or null if the failure is of no activity. */
function activityOf(error: unknown): string | null {
  let activity = null;
  for (let at = error; at instanceof Error; at = at.cause)
    if (at instanceof ActivityFailure) activity = at.activityType;
  return activity;
}

/** Says what the end of an activity's time means for a person. Temporal's own words name only the limit. */
function ofTimeout({ message, timeoutType }: TimeoutFailure, activity: string | null): string {
  if (activity === null || timeoutType === undefined) return message;
  const what = {
    SCHEDULE_TO_START: `no worker took ${activity} in time: the worker of its host, or the deployment, was stopped`,
    START_TO_CLOSE: `${activity} did not end in its time: its worker or the deployment was stopped, or it takes longer`,
    SCHEDULE_TO_CLOSE: `${activity} did not end in its time: no worker runs it, or it takes longer`,
    HEARTBEAT: `the worker that ran ${activity} fell silent: it or its machine was stopped, or had no time left for it`,
  };
  return `${what[timeoutType]} (${message})`;
}
