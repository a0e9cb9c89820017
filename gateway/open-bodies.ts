import { Failure } from './failure.ts';

/** Of all bytes, one trial's share: with a few calls it must not keep others' from being read. */
const SHARE = 1 / 4;

/** How many bytes the bodies of open calls hold, together and by trial: a call keeps its body, or what was made of it, until its reply has ended. */
export class OpenBodies {
  readonly #byTrial = new Map<string, number>();
  #total = 0;

  enter(trialId: string, maxBytes: number): { hold: (bytes: number) => void; leave: () => void } {
    let own = 0;
    const change = (bytes: number): void => {
      own += bytes;
      this.#total += bytes;
      const ofTrial = (this.#byTrial.get(trialId) ?? 0) + bytes;
      if (ofTrial > 0) this.#byTrial.set(trialId, ofTrial);
      else this.#byTrial.delete(trialId);
    };
    return {
      hold: (bytes) => {
        // One call is let in however large: `max_body_bytes` bounds that.
        const ofOthers = (this.#byTrial.get(trialId) ?? 0) - own;
        if (ofOthers > 0 && ofOthers + own + bytes > maxBytes * SHARE) throw tooMany(429, 'the bodies of the trial\'s open calls hold all that one trial\'s may');
        if (this.#total > own && this.#total + bytes > maxBytes) throw tooMany(503, 'the bodies of open calls hold all that they may');
        change(bytes);
      },
      leave: () => change(-own),
    };
  }
}

const tooMany = (status: number, what: string) =>
  new Failure(status, 'too_many_bytes_in_flight', `${what} (setting max_body_bytes_in_flight): try again when some have ended`, { headers: { 'retry-after': '2' } });
