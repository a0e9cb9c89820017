import { TrialgateApiError, TrialgateClient, type ClaimedTrial } from './client.ts';

type Options = {
  baseUrl: string;
  /** The run's key: `npx trialgate key RUN` prints it, as TRIALGATE_RUN_KEY. */
  key: string;
  fetch?: typeof fetch;
  /** The milliseconds for which a gateway that cannot be reached is asked again; absent: ten minutes. */
  patienceMs?: number;
};

/** The run takes no more groups. */
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
  readonly #options: Options;
  readonly #client: TrialgateClient;

  constructor(id: string, options: Options) {
    this.id = id;
    this.#options = options;
    this.#client = new TrialgateClient({ baseUrl: options.baseUrl, fetch: options.fetch });
  }

  /**
   * Claims a group of trials for `task`, waits until the run has one, and gives it to `body`. All trials of a group do the same task, because
   * their rewards are compared with each other. Trials that have no report at the end are discarded, also when `body` throws.
   * @throws RunEnded when the run takes no more groups
   */
  async group<T>(task: string, body: (trials: Trial[]) => Promise<T>, signal?: AbortSignal): Promise<T> {
    const trials = await this.#claim(task, signal);
    let reason = 'the program left the group without a reward';
    try {
      return await body(trials);
    } catch (error) {
      reason = `the program stopped: ${error instanceof Error ? `${error.name}: ${error.message}` : String(error)}`;
      throw error;
    } finally {
      await Promise.all(trials.filter((trial) => !trial.isReported).map((trial) => trial.discard(reason)));
    }
  }

  async #claim(task: string, signal: AbortSignal | undefined): Promise<Trial[]> {
    const claim = crypto.randomUUID();
    for (;;) {
      const { run, reason, group } = await this.#ask(
        (key) => this.#client.claim(this.id, { task, claim }, { key, signal }),
        { isClaim: true },
      );
      if (run === 'completed' || run === 'failed' || run === 'cancelled') throw new RunEnded(this.id, run, reason);
      if (group) return group.trials.map((each) => new Trial(each, group.task, this.#end));
      signal?.throwIfAborted();
      await pause(1_000);
    }
  }

  readonly #end: End = async (trial, reward, reason) => {
    try {
      await this.#ask((key) =>
        this.#client.report(this.id, trial.id, { attempt: trial.attempt, reward, reason }, { key }),
      );
      trial.isReported = true;
      return true;
    } catch (error) {
      if (error instanceof TrialgateApiError && error.code === 'attempt_closed') {
        trial.isReported = true;
        return false;
      }
      throw error;
    }
  };

  /**
   * Asks the gateway, and asks again while it or its database is away. Repeating a claim or a report is safe. A run that has just been
   * started is not known yet, so a claim waits for it too.
   */
  async #ask<T>(ask: (key: string) => Promise<T>, { isClaim = false } = {}): Promise<T> {
    const { key, patienceMs = 600_000 } = this.#options;
    for (const giveUp = Date.now() + patienceMs; ;) {
      try {
        return await ask(key);
      } catch (error) {
        const isRefused =
          error instanceof TrialgateApiError && error.status < 500 && !(isClaim && error.code === 'not_found');
        const isAborted = error instanceof DOMException;
        if (isRefused || isAborted || Date.now() > giveUp) throw error;
      }
      await pause(2_000);
    }
  }
}

type End = (trial: Trial, reward: number | Record<string, number> | null, reason?: string) => Promise<boolean>;

/** One trial of a claimed group. Give `baseUrl` and `apiKey` to its agent, in any client of OpenAI or Anthropic. */
export class Trial {
  readonly id: string;
  readonly index: number;
  readonly attempt: number;
  readonly baseUrl: string;
  readonly apiKey: string;
  readonly task: string;
  readonly model = 'policy';
  isReported = false;
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
   */
  report(reward: number | Record<string, number>): Promise<boolean> {
    return this.#end(this, reward);
  }

  /** Ends the trial without a reward. It is not trained on. */
  discard(reason: string): Promise<boolean> {
    return this.#end(this, null, reason.slice(0, 4_000));
  }
}

const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));
