import type { TrialNow } from '../store/queries/find-trials.ts';
import { readCall } from '../store/queries/read-call.ts';
import { readReplies } from '../store/queries/read-replies.ts';
import type { ModelRequest } from './chat/request.ts';
import type { GatewayDeps } from './deps.ts';
import { isObject } from './json.ts';
import { patiently } from './patiently.ts';
import { onlyChoice } from './protocols/said.ts';

/** Returns the request with the content of the recorded calls that it names by id, whichever process recorded them. */
export async function resolveReferences<R extends ModelRequest>(deps: GatewayDeps, { id: trialId, attempt }: TrialNow, request: R): Promise<R> {
  const { fromRecord } = request;
  if (!fromRecord) return request;
  const resolved = await fromRecord({
    call: async (id) => {
      const call = await patiently(deps, () => readCall(deps.db, { trialId, attempt, id }));
      // The empty reply of a spent budget is also an answer, and it is recorded as failed.
      const message = call?.httpStatus === 200 ? onlyChoice(call.response ?? {}).message : null;
      return call && isObject(message) ? { request: call.request, message } : null;
    },
    replies: (ids) => patiently(deps, () => readReplies(deps.db, { trialId, attempt, ids })),
  });
  return { ...request, ...resolved };
}
