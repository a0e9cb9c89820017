import { Failure } from './failure.ts';

/** Of all bytes, one trial's share: with a few calls it must not keep others' from being read. */
const SHARE = 1 / 4;

/** How many bytes the bodies of open calls hold, together and by trial: a call keeps its body, or what was made of it, until its reply has ended. */
export class OpenBodies {
  readonly #byTrial = new Map<string, number>();
  #total = 0;

  /**
   * Lets a body in, of which `announced` bytes are to come. A trial's share counts what is announced, so that of several bodies the
   * first ones are read to their end; all together count what has come, so that who sends nothing takes nothing from others.
   */
  enter(trialId: string, { announced, maxBytes }: { announced: number; maxBytes: number }): { hold: (bytes: number) => void; leave: () => void } {
    let [held, claimed] = [0, 0];
    const claim = (bytes: number): void => {
      const ofTrial = this.#byTrial.get(trialId) ?? 0;
      // One body is let in however large: `max_body_bytes` bounds that.
      if (bytes > claimed && ofTrial > claimed && ofTrial - claimed + bytes > maxBytes * SHARE) throw tooMany(429, "the bodies of the trial's open calls hold all that one trial's may");
      this.#byTrial.set(trialId, ofTrial - claimed + bytes);
      if (ofTrial - claimed + bytes === 0) this.#byTrial.delete(trialId);
      claimed = bytes;
    };
    claim(announced);
    return {
      hold: (bytes) => {
        if (this.#total > held && this.#total + bytes > maxBytes) throw tooMany(503, 'the bodies of open calls hold all that they may');
        if (held + bytes > claimed) claim(held + bytes);
        held += bytes;
        this.#total += bytes;
      },
      leave: () => {
        claim(0);
        this.#total -= held;
        held = 0;
      },
    };
  }
}

const tooMany = (status: number, what: string) =>
  new Failure(status, 'too_many_bytes_in_flight', `${what} (setting max_body_bytes_in_flight): try again when some have ended`, { headers: { 'retry-after': '2' } });
