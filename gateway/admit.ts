import type { GatewayDeps } from './deps.ts';
import { Failure } from './failure.ts';

/** Counts a trial's request in, before its body is read, until its reply has ended: what it returns counts it out. */
export function admit({ openCalls, settings: { maxCallsInFlight } }: GatewayDeps, trialId: string): () => void {
  if (openCalls.count(trialId) < maxCallsInFlight) return openCalls.enter(trialId);
  throw new Failure(429, 'too_many_calls', `the trial has ${maxCallsInFlight} calls open, which is all it may have at once`, { headers: { 'retry-after': '1' } });
}
