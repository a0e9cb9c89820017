import type { Failure } from '../../failure.ts';
import { budgetExhaustedBody } from './budget-exhausted.ts';
import type { Call } from '../call.ts';
import type { Progress } from '../generate.ts';
import type { Recording } from '../record.ts';
import { wholeReply } from './whole-reply.ts';

/** Records why a call failed before its agent has seen anything of a reply, and throws that. If only its time is up, the agent gets an empty reply. */
export async function replyOfFailure(
  call: Call,
  recording: Recording,
  error: unknown,
  progress: Progress,
): Promise<Response> {
  const failure = call.failureOf(error);
  if (failure === call.budgetExhausted) return budgetExhaustedReply(call, recording, failure, progress);
  call.abort(failure);
  await recording.fail(failure, progress);
  failure.headers['x-trialgate-call'] = call.id;
  throw failure;
}

/** Answers an agent whose trial has used up its budget: without text, ended by its length, in the form of its protocol. */
export async function budgetExhaustedReply(
  call: Call,
  recording: Recording,
  why: Failure,
  progress: Progress,
): Promise<Response> {
  const whole = budgetExhaustedBody(call);
  await recording.refuse(why, whole, progress);
  return wholeReply(call.id, whole, call.request);
}
