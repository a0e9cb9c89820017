import { Failure } from '../../failure.ts';
import type { GatewayDeps } from '../deps.ts';

/** A trial's share of the open calls. */
export type Admission = {
  /** Counts bytes of the body until the call leaves. Throws when there are too many. */
  hold: (bytes: number) => void;
  release: () => void;
};

/** Counts a trial's request as open before its body is read, until its reply has ended. */
export function admit(
  { openCalls, openBodies, settings: { maxCallsInFlight, maxBodyBytesInFlight } }: GatewayDeps,
  trialId: string,
  { headers }: Request,
): Admission {
  if (openCalls.count(trialId) >= maxCallsInFlight) {
    throw new Failure(
      429,
      'too_many_calls',
      `the trial has ${maxCallsInFlight} calls open, the most it may have at once (setting max_calls_in_flight): try again when one has ended`,
      { headers: { 'retry-after': '1' } },
    );
  }
  const body = openBodies.enter(trialId, {
    announced: Number(headers.get('content-length') ?? 0),
    maxBytes: maxBodyBytesInFlight,
  });
  const release = openCalls.enter(trialId);
  return {
    hold: body.hold,
    release: () => {
      body.release();
      release();
    },
  };
}
