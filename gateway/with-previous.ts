import type { TrialNow } from '../store/queries/find-trials.ts';
import { readCall } from '../store/queries/read-call.ts';
import type { ModelRequest } from './chat/request.ts';
import type { GatewayDeps } from './deps.ts';
import { isObject } from './json.ts';
import { patiently } from './patiently.ts';
import { onlyChoice } from './protocols/said.ts';

/** The request with the messages and the reply before it of the recorded call that it names, by whichever process that was made. */
export async function withPrevious<R extends ModelRequest>(deps: GatewayDeps, { id: trialId, attempt }: TrialNow, request: R): Promise<R> {
  const { previous } = request;
  if (!previous) return request;
  const { callId: id } = previous;
  const call = id === null ? undefined : await patiently(deps, () => readCall(deps.db, { trialId, attempt, id }));
  // A spent budget's empty reply was an answer too, and it is recorded as failed.
  const message = call?.httpStatus === 200 ? onlyChoice(call.response ?? {}).message : null;
  if (!call || !isObject(message)) throw previous.unknown();
  return { ...request, ...previous.join({ request: call.request, message }) };
}
