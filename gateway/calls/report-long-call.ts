import { endLongCall, noteLongCall } from '../../store/queries/long-calls.ts';
import { sampledTokens } from '../engines/call-result.ts';
import type { Call } from './call.ts';
import type { CallDeps } from './deps.ts';
import { boundTools } from './place.ts';
import { constraintsOf } from './sampling/constraints.ts';

/** Most calls end earlier and write nothing. */
const FIRST_MS = 5_000;
/** A row that is older than several of these is of a dead gateway. */
const NEXT_MS = 8_000;

/**
 * Writes into the store that a call is under way, while it lasts long, so that a worker knows what its trial waits for. It changes nothing
 * for the call: a failed write is tried again with the next.
 */
export function reportLongCall({ db }: CallDeps, call: Call): void {
  let written: Promise<unknown> | null = null;
  const write = () => {
    const { placed, result, firstTokenAt } = call.progress;
    written = noteLongCall(db, {
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
    }).catch(() => {});
    timer = setTimeout(write, NEXT_MS);
  };
  let timer = setTimeout(write, FIRST_MS);
  call.onEnd(() => {
    clearTimeout(timer);
    // The last write must not come after the end.
    void written?.then(() => endLongCall(db, call.id)).catch(() => {});
  });
}
