import { join } from 'node:path';
import { TrialgateError } from '../../core/errors.ts';
import { isObject } from '../../core/json.ts';
import type { RewardFunction } from '../../core/run-config/reward.ts';
import type { RowTask } from '../../core/task.ts';
import type { Sandbox } from '../sandbox/empty-sandbox.ts';
import { SandboxError, VerifierError } from '../sandbox/errors.ts';
import { rewardsOfBroken } from '../sandbox/judge-work.ts';
import { readSmall } from '../sandbox/read-rewards.ts';
import { GradeError, type Grade, type GradeRequest } from './grader.ts';
import type { Graders } from './graders.ts';

export type RowVerdict = { rewards: Record<string, number>; reason?: string; stdout: string; stderr: string };

/** What is judged. Without a run, nothing was trained. */
type Work = { sandbox: Sandbox; graders: Graders; transcript: unknown[] } & Partial<
  Pick<GradeRequest, 'completion_ids' | 'training'>
>;
export const UNTRAINED: GradeRequest['training'] = { global_step: 0, max_steps: 1 };

/** The message when every function of a row left it out. */
export const NONE_FOR_THIS_ROW = 'no reward: each reward function returned None for this row';

const MAX_RESULT_BYTES = 1_048_576;

/**
 * Calls the reward functions of a row for the work in a sandbox. A function that fails on the work, but not on an empty reply, gives a reward
 * of 0 or less: otherwise wrong answers could leave the training by breaking their reward. A function that returns None is left out.
 * @throws VerifierError when a function fails on an empty reply too, or all return None; SandboxError when the host failed
 */
export async function gradeRow(
  task: RowTask,
  { sandbox, graders, transcript, completion_ids = [], training = UNTRAINED }: Work,
  signal: AbortSignal,
): Promise<RowVerdict> {
  const { row, prompt } = task;
  const request = {
    row,
    prompt,
    transcript,
    completion_ids,
    training,
    result: await readResult(sandbox),
    files: sandbox.work,
  };
  const empty = {
    ...request,
    transcript: [...task.messages, { role: 'assistant', content: '' }],
    completion_ids: [],
    result: null,
    files: null,
  };
  const grades = await Promise.all(
    Object.entries(task.rewards).map(async ([name, given]) => ({
      name,
      ...(await gradeWithControl(graders, given, { request, empty }, signal)),
    })),
  );
  if (grades.length > 0 && grades.every(({ value }) => value === null)) throw new VerifierError(NONE_FOR_THIS_ROW);
  const reasons = grades.flatMap(({ reason }) => reason ?? []);
  return {
    rewards: Object.assign({}, ...grades.map(({ name, value }) => named(name, value))),
    ...(reasons.length > 0 ? { reason: reasons.join('; ') } : {}),
    stdout: grades.map(({ stdout }) => stdout).join(''),
    stderr: grades.map(({ stderr }) => stderr).join(''),
  };
}

async function gradeWithControl(
  graders: Graders,
  given: RewardFunction,
  { request, empty }: { request: GradeRequest; empty: GradeRequest },
  signal: AbortSignal,
): Promise<Grade & { reason?: string }> {
  const error = await lastFailure(graders, given, request, signal);
  if (!(error instanceof VerifierError)) return error;
  const control = await lastFailure(graders, given, empty, signal);
  if (control instanceof VerifierError) throw error;
  if (error instanceof GradeError && error.isOutside) {
    // The network works now, as the control shows.
    const again = await lastFailure(graders, given, request, signal);
    if (!(again instanceof VerifierError)) return again;
  }
  const value = isObject(control.value) ? rewardsOfBroken(control.value) : Math.min(0, control.value ?? 0);
  const printed = error instanceof GradeError ? error.printed : { stdout: '', stderr: '' };
  return {
    value,
    ...printed,
    reason: `gets ${JSON.stringify(value)}, since the function works on an empty reply and fails on this one: ${error.message}`,
  };
}

/** The number of times that a call is tried whose processes ended. Another call may have ended them, so the last try is alone. */
const TRIES = 3;

/** Returns the grade, or how the last try failed. */
async function lastFailure(
  graders: Graders,
  given: RewardFunction,
  request: GradeRequest,
  signal: AbortSignal,
): Promise<Grade | VerifierError> {
  for (let tries = 1; ; tries++) {
    try {
      return await (tries < TRIES ? graders.grade(given, request, signal) : graders.gradeAlone(given, request, signal));
    } catch (error) {
      if (!(error instanceof VerifierError)) throw asSandboxError(error);
      if (error.failure !== 'killed' || tries >= TRIES) return error;
    }
  }
}

/** The run's packages and files were there when it began, so what is missing now is missing on this host. */
const asSandboxError = (error: unknown): unknown =>
  error instanceof TrialgateError && error.code === 'bad_input'
    ? new SandboxError(error.message, { cause: error })
    : error;

/** Returns the rewards by name. A function that gives several by name has its own name before theirs, unless it is called `reward`. */
function named(name: string, value: Grade['value']): Record<string, number> {
  if (value === null) return {};
  if (!isObject(value)) return { [name]: value };
  const prefix = name === 'reward' ? '' : `${name}/`;
  return Object.fromEntries(Object.entries(value).map(([own, each]) => [`${prefix}${own}`, each]));
}

/** Returns what the agent wrote to `result.json`: its text where that is not JSON, and null where it is too long or not UTF-8. */
async function readResult(sandbox: Sandbox): Promise<unknown> {
  const text = await readSmall(join(sandbox.work, 'result.json'), '', MAX_RESULT_BYTES).catch((error: unknown) => {
    if (error instanceof VerifierError) return null;
    throw error;
  });
  if (text === null) return null;
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}
