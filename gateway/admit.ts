import type { GatewayDeps } from './deps.ts';
import { Failure } from './failure.ts';

/** All trials' together. */
const ALL = '';

/** A request that is counted in until its reply has ended. */
export type Admitted = {
  /** For a body that did not say how long it is, once that is known: of this many bytes. */
  hold: (bytes: number) => void;
  leave: () => void;
};

/**
 * Counts a trial's request in before its body is read: among its trial's, and with its bytes among all that this process holds,
 * of which one is let in however large.
 */
export function admit({ openCalls, openBytes, settings }: GatewayDeps, trialId: string, { headers }: Request): Admitted {
  const { maxCallsInFlight, maxOpenBytes } = settings;
  if (openCalls.count(trialId) >= maxCallsInFlight) {
    throw busy(429, 'too_many_calls', `the trial has ${maxCallsInFlight} calls open, which is all it may have at once`);
  }
  const leaves: (() => void)[] = [];
  const hold = (bytes: number) => {
    const held = openBytes.count(ALL);
    if (held > 0 && held + bytes > maxOpenBytes) throw busy(503, 'too_many_bytes', `the requests that are open have ${held} bytes, and more than ${maxOpenBytes} this gateway does not hold: try again`);
    leaves.push(openBytes.enter(ALL, bytes));
  };
  const announced = headers.get('content-length');
  hold(Number(announced ?? 0));
  leaves.push(openCalls.enter(trialId));
  return { hold: (bytes) => announced === null && hold(bytes), leave: () => leaves.forEach((leave) => leave()) };
}

const busy = (status: number, code: string, message: string) => new Failure(status, code, message, { headers: { 'retry-after': '1' } });
