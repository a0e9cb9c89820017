import { createHash } from 'node:crypto';
import { statSync } from 'node:fs';
import type { RewardFunction } from '../../core/run-config/reward.ts';
import { findFunction } from './find-function.ts';
import { Grader, type Grade, type GradeRequest } from './grader.ts';

const IDLE_MS = 120_000;

type Entry = { grader: Grader; calls: number; idle: NodeJS.Timeout | undefined };

/** Keeps the processes of this worker's reward functions. The processes of a function that is not called for a while end. */
export class Graders {
  readonly #home: string;
  readonly #idleMs: number;
  readonly #kept = new Map<string, Entry>();

  constructor(home: string, idleMs = IDLE_MS) {
    this.#home = home;
    this.#idleMs = idleMs;
  }

  /**
   * Calls a function. Equal settings share their processes, also across runs. If the file has changed, new processes start.
   * @throws as `Grader.grade`; TrialgateError `bad_input` when there is no such function
   */
  async grade(given: RewardFunction, request: GradeRequest, signal: AbortSignal): Promise<Grade> {
    const found = findFunction(given);
    const key = createHash('sha256')
      .update(JSON.stringify([found, statSync(found.file).mtimeMs]))
      .digest('hex');
    const entry = this.#kept.get(key) ?? { grader: new Grader(found, this.#home), calls: 0, idle: undefined };
    this.#kept.set(key, entry);
    clearTimeout(entry.idle);
    entry.calls += 1;
    try {
      return await entry.grader.grade(request, signal);
    } finally {
      entry.calls -= 1;
      if (entry.calls === 0) entry.idle = this.#closeLater(key, entry);
    }
  }

  /** Calls a function in processes that only this call has, so that no other call can end them. */
  async gradeAlone(given: RewardFunction, request: GradeRequest, signal: AbortSignal): Promise<Grade> {
    const grader = new Grader({ ...findFunction(given), processes: 1 }, this.#home);
    try {
      return await grader.grade(request, signal);
    } finally {
      await grader.close();
    }
  }

  async close(): Promise<void> {
    const all = [...this.#kept.values()];
    this.#kept.clear();
    for (const { idle } of all) clearTimeout(idle);
    await Promise.all(all.map(({ grader }) => grader.close()));
  }

  #closeLater(key: string, entry: Entry): NodeJS.Timeout {
    return setTimeout(() => {
      if (this.#kept.get(key) === entry) this.#kept.delete(key);
      void entry.grader.close();
    }, this.#idleMs).unref();
  }
}
