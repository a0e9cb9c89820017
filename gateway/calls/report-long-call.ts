import { sampledTokens } from '../engines/call-result.ts';
import type { Call } from './call.ts';
import type { CallDeps } from './deps.ts';
import { boundTools } from './place.ts';
import { constraintsOf } from './sampling/constraints.ts';

/** Lets the store know of a call while it lasts, if it lasts long. */
export function reportLongCall({ longCalls }: CallDeps, call: Call): void {
  const forget = longCalls.follow(call.id, () => {
    const { placed, result, firstTokenAt } = call.progress;
    return {
      callId: call.id,
      trialId: call.trial.id,
      attempt: call.trial.attempt,
      runId: call.trial.runId,
      engine: placed?.lease.replica.connection.url ?? null,
      stream: call.request.stream,
      constrained: constraintsOf(placed?.inForce ?? call.sampled, boundTools(placed?.traits ?? null)).length > 0,
      startedAt: call.startedAt,
      firstTokenAt,
      tokens: sampledTokens(result),
    };
  });
  call.onEnd(forget);
}
