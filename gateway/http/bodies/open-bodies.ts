import { Failure } from '../../failure.ts';

/** One trial's share of all bytes, so that a few calls of one trial cannot block the bodies of others. */
const SHARE = 1 / 4;

/**
 * Counts the bytes that the bodies of open calls hold, in total and by trial. A call holds its body, or its parsed form, until its reply
 * has ended.
 */
export class OpenBodies {
  readonly #byTrial = new Map<string, number>();
  #total = 0;

  /**
   * Admits a body of which `announced` bytes are to come. Announced bytes count towards a trial's share, so that of several bodies that
   * arrive together the first ones can be read whole. Only received bytes count towards the total, so that a sender that sends nothing
   * takes nothing from others.
   */
  enter(
    trialId: string,
    { announced, maxBytes }: { announced: number; maxBytes: number },
  ): { hold: (bytes: number) => void; release: () => void } {
    let [held, claimed] = [0, 0];
    const claim = (bytes: number): void => {
      const ofTrial = this.#byTrial.get(trialId) ?? 0;
      // A single body of any size is admitted; `max_body_bytes` limits it.
      if (bytes > claimed && ofTrial > claimed && ofTrial - claimed + bytes > maxBytes * SHARE)
        throw tooMany(429, "the trial's open calls already hold the most bytes that one trial may hold");
      this.#byTrial.set(trialId, ofTrial - claimed + bytes);
      if (ofTrial - claimed + bytes === 0) this.#byTrial.delete(trialId);
      claimed = bytes;
    };
    claim(announced);
    return {
      hold: (bytes) => {
        if (this.#total > held && this.#total + bytes > maxBytes)
          throw tooMany(503, 'open calls already hold the most bytes that they may hold together');
        if (held + bytes > claimed) claim(held + bytes);
        held += bytes;
        this.#total += bytes;
      },
      release: () => {
        claim(0);
        this.#total -= held;
        held = 0;
      },
    };
  }
}

const tooMany = (status: number, what: string) =>
  new Failure(
    status,
    'too_many_bytes_in_flight',
    `${what} (setting max_body_bytes_in_flight): try again when some have ended`,
    { headers: { 'retry-after': '2' } },
  );
