import { TrialgateApiError, TrialgateClient, type ClaimedTrial } from './client.ts';

export type RunOptions = {
  baseUrl: string;
  /** The run's key: `npx trialgate key RUN` prints it, as TRIALGATE_RUN_KEY. Keep it out of the environment of your agents. */
  key: string;
  fetch?: typeof fetch;
  /** The milliseconds for which a gateway that cannot be reached is asked again; absent: ten minutes. */
  retryMs?: number;
  /** Is told why a group waits, and which reports came too late; absent: console.warn. */
  log?: (line: string) => void;
};

const DISCARD_MS = 10_000;

/** The run has no more groups. */
export class RunEnded extends Error {
  readonly status: 'completed' | 'failed' | 'cancelled';
  constructor(runId: string, status: RunEnded['status'], reason: string | null) {
    super(`run ${runId} is ${status}${reason ? `: ${reason}` : ''}`);
    this.name = 'RunEnded';
    this.status = status;
  }
}

/** A run with `rollouts: external`: your program claims its groups, runs its agents, and reports a reward for each trial. */
export class Run {
  readonly id: string;
  readonly #options: RunOptions;
  readonly #client: TrialgateClient;

  constructor(id: string, options: RunOptions) {
    this.id = id;
    this.#options = options;
    this.#client = new TrialgateClient({ baseUrl: new URL(options.baseUrl).href, fetch: options.fetch });
  }

  /**
   * Claims a group of trials for `task`, waits until the run has one, and gives it to `body`. All trials of a group do the same task, because
   * their rewards are compared with each other. Trials that have no reward at the end are discarded, also when `body` throws.
   * @throws RunEnded when the run has no more groups
   */
  async group<T>(task: string, body: (trials: Trial[]) => Promise<T>, signal?: AbortSignal): Promise<T> {
    const trials = await this.#claim(task, signal);
    let reason = 'the program gave it no reward';
    try {
      return await body(trials);
    } catch (error) {
      reason = `the program stopped: ${error instanceof Error ? `${error.name}: ${error.message}` : String(error)}`;
      throw error;
    } finally {
      const left = trials.filter((trial) => !trial.isEnded).map((trial) => trial.discard(reason));
      // A failure here must not hide the error that ended the body.
      for (const result of await Promise.allSettled(left))
        if (result.status === 'rejected')
          this.#log(`a trial could not be discarded, and ends at its deadline: ${String(result.reason)}`);
    }
  }

  async #claim(task: string, signal: AbortSignal | undefined): Promise<Trial[]> {
    const claim = crypto.randomUUID();
    let waitsFor: string | null = null;
    for (;;) {
      signal?.throwIfAborted();
      const { run, reason, group } = await this.#ask((key) => this.#client.claim(this.id, { task, claim }, { key }), {
        isClaim: true,
        signal,
      });
      if (run === 'completed' || run === 'failed' || run === 'cancelled') throw new RunEnded(this.id, run, reason);
      if (group) return group.trials.map((each) => new Trial(each, group.task, this.#end));
      if (run === 'blocked' && reason !== waitsFor) {
        waitsFor = reason;
        this.#log(`run ${this.id} is blocked: ${reason}`);
      }
      await pause(1_000);
    }
  }

  readonly #end: End = async (trial, reward, reason) => {
    const { id, attempt } = trial;
    const retryMs = reward === null ? Math.min(DISCARD_MS, this.#retryMs) : this.#retryMs;
    try {
      await this.#ask((key) => this.#client.report(this.id, id, { attempt, reward, reason }, { key }), { retryMs });
      trial.isEnded = true;
      return true;
    } catch (error) {
      if (!(error instanceof TrialgateApiError) || error.code !== 'attempt_closed') throw error;
      trial.isEnded = true;
      this.#log(error.message);
      return false;
    }
  };

  /**
   * Asks the gateway, and asks again while it or its database is away: repeating a claim or a report is safe. A run that has just been
   * started is not known yet, so a claim waits for it too.
   */
  async #ask<T>(
    ask: (key: string) => Promise<T>,
    {
      isClaim = false,
      signal,
      retryMs = this.#retryMs,
    }: { isClaim?: boolean; signal?: AbortSignal; retryMs?: number } = {},
  ): Promise<T> {
    for (const giveUp = Date.now() + retryMs; ;) {
      try {
        return await ask(this.#options.key);
      } catch (error) {
        const isRefusal = error instanceof TrialgateApiError && error.status < 500;
        const isUnknownYet = isClaim && isRefusal && error.code === 'not_found';
        if ((isRefusal && !isUnknownYet) || Date.now() > giveUp) throw error;
        if (!isUnknownYet) this.#log(`trying again in 2 s: ${String(error)}`);
      }
      signal?.throwIfAborted();
      await pause(2_000);
    }
  }

  get #retryMs(): number {
    return this.#options.retryMs ?? 600_000;
  }

  #log(line: string): void {
    (this.#options.log ?? console.warn)(line);
  }
}

type Reward = number | Record<string, number>;
type End = (trial: Trial, reward: Reward | null, reason?: string) => Promise<boolean>;

/** One trial of a claimed group. Give `baseUrl` and `apiKey` to its agent, in any client of OpenAI or Anthropic. */
export class Trial {
  readonly id: string;
  readonly index: number;
  readonly attempt: number;
  readonly baseUrl: string;
  readonly apiKey: string;
  readonly task: string;
  readonly model = 'policy';
  isEnded = false;
  readonly #end: End;

  constructor({ trial_id, trial_index, attempt, base_url, api_key }: ClaimedTrial, task: string, end: End) {
    this.id = trial_id;
    this.index = trial_index;
    this.attempt = attempt;
    this.baseUrl = base_url;
    this.apiKey = api_key;
    this.task = task;
    this.#end = end;
  }

  /**
   * Ends the trial with its reward: a finite number, or several by name. Returns false when the run had ended the trial before, at a
   * deadline or because the run went on without it.
   * @throws RangeError for a reward that is not finite
   */
  async report(reward: Reward): Promise<boolean> {
    for (const [name, value] of Object.entries(typeof reward === 'number' ? { reward } : reward))
      if (!Number.isFinite(value)) throw new RangeError(`${name}: a reward is a finite number, found ${value}`);
    return this.#end(this, reward);
  }

  /** Ends the trial without a reward. It is not trained on. */
  discard(reason: string): Promise<boolean> {
    return this.#end(this, null, reason);
  }
}

const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));
