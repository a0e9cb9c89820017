import type { TrialNow } from '../../store/queries/find-trials.ts';

type Lookup = { id: string; resolve: (trial: TrialNow | undefined) => void; reject: (error: unknown) => void };

/**
 * Looks trials up. Requests that come together, or while a query is under way, share a query that begins after they came. `together`
 * resolves when all requests of the same moment have asked.
 */
export class Trials {
  readonly #find: (ids: string[]) => Promise<TrialNow[]>;
  readonly #together: () => Promise<void>;
  #waiting: Lookup[] = [];
  #running = false;

  constructor(find: (ids: string[]) => Promise<TrialNow[]>, together: () => Promise<void> = async () => {}) {
    this.#find = find;
    this.#together = together;
  }

  find(id: string): Promise<TrialNow | undefined> {
    return new Promise((resolve, reject) => {
      this.#waiting.push({ id, resolve, reject });
      if (!this.#running) void this.#run();
    });
  }

  async #run(): Promise<void> {
    this.#running = true;
    while (this.#waiting.length > 0) {
      await this.#together();
      const asked = this.#waiting;
      this.#waiting = [];
      try {
        const found = new Map(
          (await this.#find([...new Set(asked.map(({ id }) => id))])).map((trial) => [trial.id, trial]),
        );
        for (const { id, resolve } of asked) resolve(found.get(id));
      } catch (error) {
        for (const { reject } of asked) reject(error);
      }
    }
    this.#running = false;
  }
}
