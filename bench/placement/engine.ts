import { BLOCK, blocksOf, KvCache } from './kv-cache.ts';
import type { Clock } from './clock.ts';

/** The parts of a step's time in seconds. They are about those of an 8B model in bfloat16 on an H100. */
export const COST = { step: 0.01, prefillToken: 0.00005, sequence: 0.0001, kvToken: 4e-8 };
const MAX_BATCHED_TOKENS = 8_192;
const MAX_RUNNING = 256;
const MOST_STEPS = 32;

export type EngineCall = {
  prompt: number;
  output: number;
  /** Returns the key of the block with this number. Blocks of equal tokens after equal tokens have equal keys. */
  keyAt: (block: number) => number;
  onEnd: () => void;
};

type Sequence = {
  call: EngineCall;
  sampled: number;
  /** The tokens of the prompt, and of what was sampled before a preemption, that still need prefill. */
  prefill: number;
  keys: number[];
};

export type EngineFigures = { queried: number; hit: number; preemptions: number };

/** An engine with continuous batching, chunked prefill and a paged KV cache with prefix caching; `slowness` multiplies its times. */
export class SimulatedEngine {
  readonly name: string;
  readonly slowness: number;
  readonly figures: EngineFigures = { queried: 0, hit: 0, preemptions: 0 };
  readonly kv: KvCache;
  readonly #clock: Clock;
  readonly #waiting: Sequence[] = [];
  #running: Sequence[] = [];
  #block: { start: number; stepSeconds: number; steps: number; id: number } | null = null;
  #blocks = 0;

  constructor(name: string, kvTokens: number, clock: Clock, slowness = 1) {
    this.name = name;
    this.slowness = slowness;
    this.kv = new KvCache(blocksOf(kvTokens));
    this.#clock = clock;
  }

  get running(): number {
    return this.#running.length;
  }

  get waiting(): number {
    return this.#waiting.length;
  }

  add(call: EngineCall): void {
    this.#waiting.push({ call, sampled: 0, prefill: 0, keys: [] });
    if (this.#block) this.#endBlockSoon();
    else this.#begin();
  }

  /** Yields for the oracle how many tokens each call has still to prefill and to sample. */
  *work(): Generator<{ prefill: number; left: number; blocks: number; isRunning: boolean }> {
    for (const { call, sampled, prefill, keys } of this.#running)
      yield { prefill, left: call.output - sampled, blocks: keys.length, isRunning: true };
    for (const { call, sampled } of this.#waiting) {
      const tokens = call.prompt + sampled;
      const prefill = tokens - this.cachedTokens(call, tokens);
      yield { prefill, left: call.output - sampled, blocks: blocksOf(tokens), isRunning: false };
    }
  }

  cachedTokens(call: Pick<EngineCall, 'keyAt'>, tokens: number): number {
    const full = Math.floor((tokens - 1) / BLOCK);
    let matched = 0;
    while (matched < full && this.kv.has(call.keyAt(matched))) matched += 1;
    return matched * BLOCK;
  }

  /** Plans the next steps. Admits the calls that fit. Then prefills one chunk, or samples one token for each sequence a step. */
  #begin(): void {
    let budget = MAX_BATCHED_TOKENS - this.#running.length;
    for (
      let next = this.#waiting[0];
      next && this.#running.length < MAX_RUNNING && budget > 0;
      next = this.#waiting[0]
    ) {
      if (!this.#admit(next)) break;
      this.#waiting.shift();
      this.#running.push(next);
      budget -= next.prefill;
    }
    if (this.#running.length === 0) return void (this.#block = null);
    let chunk = MAX_BATCHED_TOKENS - this.#running.length;
    let prefilled = 0;
    for (const sequence of this.#running) {
      const part = Math.min(sequence.prefill, chunk);
      sequence.prefill -= part;
      chunk -= part;
      prefilled += part;
    }
    const steps = prefilled > 0 ? 1 : this.#growBy(MOST_STEPS);
    if (prefilled > 0) this.#growBy(1);
    const stepSeconds =
      this.slowness *
      (COST.step +
        COST.prefillToken * prefilled +
        COST.sequence * this.#running.length +
        COST.kvToken * this.kv.used * BLOCK);
    this.#block = { start: this.#clock.now, stepSeconds, steps, id: ++this.#blocks };
    this.#schedule();
  }

  #admit(sequence: Sequence): boolean {
    const { call, sampled } = sequence;
    const tokens = call.prompt + sampled;
    const keys = Array.from({ length: blocksOf(tokens + 1) }, (_, i) => call.keyAt(i));
    if (!this.kv.fits(keys)) return false;
    const cached = this.cachedTokens(call, tokens);
    this.kv.take(keys);
    Object.assign(sequence, { keys, prefill: tokens - cached });
    this.figures.queried += tokens;
    this.figures.hit += cached;
    return true;
  }

  /** Makes room for up to `most` more tokens of each sequence that samples, and returns how many. Preempts the youngest while there is no room for one. */
  #growBy(most: number): number {
    for (;;) {
      const sampling = this.#running.filter(({ prefill }) => prefill === 0);
      const left = Math.min(most, ...sampling.map(({ call, sampled }) => call.output - sampled));
      for (const steps of [left, 1]) {
        const fresh = sampling.map(({ call, sampled, keys }) => {
          const blocks = blocksOf(call.prompt + sampled + steps);
          return Array.from({ length: Math.max(blocks - keys.length, 0) }, (_, i) => call.keyAt(keys.length + i));
        });
        if (!this.kv.fits(fresh.flat())) continue;
        for (const [i, keys] of fresh.entries()) {
          this.kv.take(keys);
          sampling[i]?.keys.push(...keys);
        }
        return steps;
      }
      this.#preempt();
    }
  }

  #preempt(): void {
    const youngest = this.#running.pop();
    if (!youngest) throw new Error('a call does not fit into an empty engine');
    this.kv.give(youngest.keys);
    Object.assign(youngest, { keys: [], prefill: 0 });
    this.#waiting.unshift(youngest);
    this.figures.preemptions += 1;
  }

  #schedule(): void {
    const block = this.#block;
    if (!block) return;
    const { id, start, steps, stepSeconds } = block;
    this.#clock.at(start + steps * stepSeconds, () => {
      if (this.#block?.id === id && this.#block.steps === steps) this.#end(steps);
    });
  }

  /** Ends the planned steps after the one under way, so that a call that has just come is admitted at the next step. */
  #endBlockSoon(): void {
    const block = this.#block;
    if (!block) return;
    const done = Math.max(Math.ceil((this.#clock.now - block.start) / block.stepSeconds - 1e-9), 1);
    if (done >= block.steps) return;
    block.steps = done;
    this.#schedule();
  }

  #end(steps: number): void {
    const ended: Sequence[] = [];
    for (const sequence of this.#running) {
      if (sequence.prefill > 0) continue;
      sequence.sampled += steps;
      if (sequence.sampled >= sequence.call.output) ended.push(sequence);
    }
    if (ended.length > 0) this.#running = this.#running.filter((sequence) => !ended.includes(sequence));
    for (const { keys } of ended) this.kv.give(keys);
    this.#block = null;
    for (const { call } of ended) call.onEnd();
    if (!this.#block) this.#begin();
  }
}
