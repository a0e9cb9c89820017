import { setImmediate, setTimeout } from 'node:timers/promises';
import { sharedLength } from '../../../../core/token-ids.ts';
import type { FinishReason, Sequence } from './sequence.ts';

type Limits = {
  /** Milliseconds before each step. */
  pace: number;
  maxRunning: number;
  /** Null: no limit. */
  maxQueued: number | null;
};

/** Runs sequences as SGLang's scheduler does: one token a step for each that runs, with pauses, aborts and new weights between steps. */
export class Scheduler {
  waiting: Sequence[] = [];
  running: Sequence[] = [];
  isPaused = false;
  weightVersion = 'default';
  /** The time of its last report, in ms since the epoch. */
  reportedAt = 0;
  readonly #limits: () => Limits;
  readonly #cache = new PrefixCache();
  #isStepping = false;

  constructor(limits: () => Limits) {
    this.#limits = limits;
  }

  add(sequence: Sequence): void {
    const { maxQueued } = this.#limits();
    if (maxQueued !== null && this.waiting.length + 1 > maxQueued)
      return this.#endInQueue(sequence, { type: 'abort', status_code: 503, message: 'The request queue is full.' });
    this.waiting.push(sequence);
    this.#wake();
  }

  #wake(): void {
    if (this.#isStepping) return;
    this.#isStepping = true;
    void this.#run();
  }

  async #run(): Promise<void> {
    while (!this.isPaused && this.waiting.length + this.running.length > 0) {
      const { pace } = this.#limits();
      await (pace > 0 ? setTimeout(pace) : setImmediate());
      if (this.isPaused) break;
      this.#step();
    }
    this.#isStepping = false;
  }

  #step(): void {
    const { maxRunning } = this.#limits();
    for (const sequence of this.waiting.splice(0, Math.max(0, maxRunning - this.running.length))) {
      sequence.cachedTokens = this.#cache.match(sequence.cacheKey, sequence.prompt);
      sequence.isRetracted = false;
      this.running.push(sequence);
    }
    for (const sequence of this.running) {
      sequence.step();
      if (sequence.isDue) this.#report(sequence);
      if (sequence.finished) this.#cache.add(sequence.cacheKey, [...sequence.prompt, ...sequence.output]);
    }
    this.running = this.running.filter(({ finished }) => !finished);
  }

  #report(sequence: Sequence): void {
    this.reportedAt = Date.now();
    sequence.report();
    sequence.sent = sequence.output.length;
  }

  #endInQueue(sequence: Sequence, reason: FinishReason): void {
    sequence.finished = reason;
    sequence.endedInQueue = true;
    this.#report(sequence);
  }

  /** Ends every sequence whose id begins so. One that runs has one more step. */
  abort(rid: string): void {
    const isMeant = (sequence: Sequence) => sequence.rid.startsWith(rid);
    const ended = this.waiting.filter(isMeant);
    this.waiting = this.waiting.filter((sequence) => !isMeant(sequence));
    for (const sequence of ended) this.#endInQueue(sequence, { type: 'abort', message: 'Abort in waiting queue' });
    for (const sequence of this.running.filter(isMeant))
      sequence.toFinish = { type: 'abort', message: 'Aborted', status_code: null, err_type: null };
  }

  /** Stops all steps. `retract` also takes the KV of all that run, which wait then for a new prefill. */
  pause(mode: 'in_place' | 'retract'): void {
    this.isPaused = true;
    if (mode === 'in_place') return;
    for (const sequence of this.running) {
      sequence.isRetracted = true;
      sequence.retractions += 1;
    }
    this.waiting.push(...this.running.splice(0));
  }

  goOn(): void {
    this.isPaused = false;
    this.#wake();
  }

  /** Returns false, and does nothing, while requests run or wait. Those that wait do not count during a pause. */
  flush(): boolean {
    const isIdle = this.running.length === 0 && (this.isPaused || this.waiting.length === 0);
    if (isIdle) this.#cache.clear();
    return isIdle;
  }

  setWeightVersion(version: string): void {
    if (version === this.weightVersion) return;
    for (const sequence of [...this.running, ...this.waiting]) sequence.noteChange(this.weightVersion);
    this.weightVersion = version;
  }
}

const KEPT = 32;

/** The last sequences whose KV is kept. Those of different keys share nothing. */
class PrefixCache {
  readonly #kept = new Map<string, (readonly number[])[]>();

  /** The last token of a prompt is always computed. */
  match(key: string, prompt: readonly number[]): number {
    const lengths = (this.#kept.get(key) ?? []).map((ids) => sharedLength(ids, prompt));
    return Math.min(Math.max(0, ...lengths), prompt.length - 1);
  }

  add(key: string, ids: readonly number[]): void {
    this.#kept.set(key, [...(this.#kept.get(key) ?? []), ids].slice(-KEPT));
  }

  clear(): void {
    this.#kept.clear();
  }
}
