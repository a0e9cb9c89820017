import { affinityId } from '../../core/keys.ts';

/** The headers in which vllm-router, Dynamo and other routers look for a request's session. */
const NAMES = ['x-session-id', 'x-dynamo-session-id', 'x-session-token'];

/** Returns headers by which a router keeps a trial's calls at one engine. */
export function affinityHeaders(secret: string, trialId: string): Record<string, string> {
  const id = affinityId(secret, trialId);
  return Object.fromEntries(NAMES.map((name) => [name, id]));
}
