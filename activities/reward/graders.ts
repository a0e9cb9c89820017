import { createHash } from 'node:crypto';
import { statSync } from 'node:fs';
import type { RewardFunction } from '../../core/run-config/reward.ts';
import { findFunction } from './find-function.ts';
import { Grader } from './grader.ts';

const IDLE_MS = 120_000;

type Entry = { grader: Grader; idle: NodeJS.Timeout };

/** The reward functions that this worker keeps warm. One that is not called for a while is ended. */
export class Graders {
  readonly #home: string;
  readonly #idleMs: number;
  readonly #kept = new Map<string, Entry>();

  constructor(home: string, idleMs = IDLE_MS) {
    this.#home = home;
    this.#idleMs = idleMs;
  }

  /**
   * Returns the process of a function. Equal settings share one, also across runs. If the file has changed, a new process starts.
   * @throws TrialgateError `bad_input` when there is no such function
   */
  of(given: RewardFunction): Grader {
    const found = findFunction(given);
    const key = createHash('sha256')
      .update(JSON.stringify([found, statSync(found.file).mtimeMs]))
      .digest('hex');
    const known = this.#kept.get(key);
    if (known) clearTimeout(known.idle);
    const entry = known ?? { grader: new Grader(found, this.#home), idle: this.#closeLater(key) };
    entry.idle = this.#closeLater(key);
    this.#kept.set(key, entry);
    return entry.grader;
  }

  async close(): Promise<void> {
    const all = [...this.#kept.values()];
    this.#kept.clear();
    for (const { idle } of all) clearTimeout(idle);
    await Promise.all(all.map(({ grader }) => grader.close()));
  }

  #closeLater(key: string): NodeJS.Timeout {
    return setTimeout(() => {
      const entry = this.#kept.get(key);
      if (!entry) return;
      if (entry.grader.load > 0) entry.idle = this.#closeLater(key);
      else {
        this.#kept.delete(key);
        void entry.grader.close();
      }
    }, this.#idleMs).unref();
  }
}
