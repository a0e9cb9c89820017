import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';

/** The percentage of the last ten seconds in which all work of the host waited for memory. Above this, more work makes all of it slower. */
const MOST_STALLED = 10;
/** The percentage of the host's memory that is still available. Below this, the kernel soon ends processes. */
const LEAST_AVAILABLE = 5;
/** A shortage ends when it is this much better than where it begins, so that it does not begin and end every second. */
const MARGIN = 2;
const POLL_MS = 1000;

/** Returns why the host is short of memory, for people; null if it is not, or where the kernel does not tell. */
export function memoryShortage(wasShort: boolean, proc = '/proc'): string | null {
  const margin = wasShort ? MARGIN : 1;
  const stalled = numberIn(join(proc, 'pressure/memory'), /^full avg10=([\d.]+)/m);
  if (stalled !== null && stalled * margin > MOST_STALLED)
    return `all work waited for memory in ${stalled}% of the last 10 s`;
  const total = numberIn(join(proc, 'meminfo'), /^MemTotal: +(\d+)/m);
  const available = numberIn(join(proc, 'meminfo'), /^MemAvailable: +(\d+)/m);
  if (total === null || available === null) return null;
  const percentage = (100 * available) / total;
  return percentage / margin < LEAST_AVAILABLE ? `${percentage.toFixed(1)}% of its memory is available` : null;
}

function numberIn(file: string, pattern: RegExp): number | null {
  try {
    const found = pattern.exec(readFileSync(file, 'utf8'))?.[1];
    return found === undefined ? null : Number(found);
  } catch {
    return null;
  }
}

type Options = {
  shortage?: (wasShort: boolean) => string | null;
  log?: (line: string) => void;
  pollMs?: number;
};

/** Lets new sandboxes wait while their host is short of memory. */
export class MemoryGate {
  readonly #shortage: (wasShort: boolean) => string | null;
  readonly #log: (line: string) => void;
  readonly #pollMs: number;
  #isShort = false;

  constructor({ shortage = memoryShortage, log = console.log, pollMs = POLL_MS }: Options = {}) {
    this.#shortage = shortage;
    this.#log = log;
    this.#pollMs = pollMs;
  }

  /** Waits until a sandbox may start. One that is alone may always, so that trials never stop. Rejects with the signal's reason when the signal aborts. */
  async pass(isAlone: () => boolean, signal: AbortSignal): Promise<void> {
    while (!this.#mayStart(isAlone())) {
      signal.throwIfAborted();
      await sleep(this.#pollMs, undefined, { signal }).catch(() => {});
    }
    signal.throwIfAborted();
  }

  #mayStart(isAlone: boolean): boolean {
    const why = this.#shortage(this.#isShort);
    if (why !== null && !this.#isShort)
      this.#log(
        `this host is short of memory (${why}): new trials wait until it has more, or until no other runs here`,
      );
    if (why === null && this.#isShort) this.#log('this host has memory again: new trials start');
    this.#isShort = why !== null;
    return why === null || isAlone;
  }
}
