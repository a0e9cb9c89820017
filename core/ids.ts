import { TrialgateError } from './errors.ts';

/** The form of a trial's id. Ids of other programs may contain slashes, colons and at signs, which are percent-encoded in a path. */
export const TRIAL_ID = /^[A-Za-z0-9][A-Za-z0-9._:@/-]{0,254}$/;

/** True when the text can be a trial's id. PostgreSQL refuses a query with some other texts (`\u0000`). */
export const isTrialId = (text: string): boolean => TRIAL_ID.test(text);

/** The form of the id of a trial that runs in a sandbox of ours. The id names the sandbox's folder, so it has no slash and is shorter. */
export const SANDBOX_TRIAL_ID = /^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$/;

/** The form of the id of a run of ours. Ids of its workflows, groups and trials begin with it, and `@` separates it from a version. */
export const RUN_ID = /^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/;

/** @throws TrialgateError `bad_input` when the text cannot be the id of a run of ours */
export function requireRunId(runId: string): void {
  if (!RUN_ID.test(runId))
    throw new TrialgateError(
      'bad_input',
      `run id ${JSON.stringify(runId)}: use letters, digits, '.', '_' and '-', at most 64`,
    );
}

/** The form of the id of a run or a group that a client of the gateway's API gives its trials. It may belong to another program. */
export const CLIENT_RUN_ID = /^[A-Za-z0-9][A-Za-z0-9._/-]{0,255}$/;

/** The form of the id of any group, ours or a client's. That of an evaluation of ours is `{run}/eval@{version}/{ordinal}`. */
export const GROUP_ID = /^[A-Za-z0-9][A-Za-z0-9._@/-]{0,255}$/;

/** The form of the id of an evaluation: of a policy version, or the nth on demand of it. */
export const EVALUATION_ID = /^eval@\d+(\.\d+)?$/;
