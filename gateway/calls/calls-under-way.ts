import type { CallStatus } from '../../store/schema.ts';
import { shuttingDown, type Failure } from '../failure.ts';
import type { SameCall } from '../record/same-calls.ts';
import type { Call } from './call.ts';
import type { CallDeps } from './deps.ts';
import type { ReceivedCall } from './received.ts';
import { keepReserved, type Allowance } from './reserve.ts';

type Held = {
  /** Its place among equal calls. Null for a call that its client never marks as a retry. */
  tries: SameCall | null;
  reserved: Allowance;
};

/** A longer timer would fire at once. Such a budget is checked when the next call comes. */
const LONGEST_TIMER = 2 ** 31 - 1;

/** The calls of this process that have not ended, and what is held for each until then. */
export class CallsUnderWay {
  readonly #deps: CallDeps;
  readonly #calls = new Set<Call>();

  constructor(deps: CallDeps) {
    this.#deps = deps;
    deps.stopping.addEventListener('abort', () => this.#stop());
  }

  enter(call: Call, { agent, release }: ReceivedCall, { tries, reserved }: Held): void {
    const { counters, deliveries, stopping } = this.#deps;
    const { reservation, timeLeft, refusal } = reserved;
    this.#calls.add(call);
    counters.inFlight += 1;
    const stopRenewing = reservation && keepReserved(this.#deps, reservation);
    const timer = timeLeft && !refusal ? this.#endAfter(call, timeLeft) : null;
    if (tries) {
      const ended = Promise.withResolvers<CallStatus>();
      call.onEnd(ended.resolve);
      void deliveries.track(call.id, outcomeOf(ended.promise, agent.delivered())).then(() => tries.release());
    }
    call.onEnd(() => {
      if (timer) clearTimeout(timer);
      stopRenewing?.();
      this.#calls.delete(call);
      counters.inFlight -= 1;
      release();
    });
    if (stopping.aborted) this.#stop();
  }

  #stop(): void {
    for (const call of this.#calls) call.abort(shuttingDown());
  }

  /** Ends a call when the time is up: by the reply's length where the agent may see that. */
  #endAfter(call: Call, { ms, failure }: { ms: number; failure: Failure }) {
    const end = () => (this.#deps.settings.budgetEnd === 'length' ? call.runOut(failure) : call.abort(failure));
    return ms > LONGEST_TIMER ? null : setTimeout(end, ms);
  }
}

/** Resolves to true when the agent received the whole reply, and to null when no reply was recorded. */
async function outcomeOf(ended: Promise<CallStatus>, delivered: Promise<boolean>): Promise<boolean | null> {
  return (await ended) === 'completed' ? delivered : null;
}
