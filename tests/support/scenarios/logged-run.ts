import { and, eq } from 'drizzle-orm';
import { runConfig } from '../../../core/run-config/run-config.ts';
import type { Database } from '../../../store/database.ts';
import { batches, groups, iterations, policyVersions, runs, trials, type RunStatus } from '../../../store/schema.ts';

const START = Date.now() - 3600_000;

/** A run in the record alone, whose steps a test writes one by one, as a run's activities do. */
export class LoggedRun {
  readonly id: string;
  readonly #db: Database;
  #minutes = 0;

  constructor(db: Database, id: string) {
    this.#db = db;
    this.id = id;
  }

  async begin(loggers: unknown[] = [], forkedFrom: string | null = null): Promise<this> {
    const config = runConfig.parse({ model: 'm', tasks: ['t'], iterations: 9, loggers });
    await this.#db.insert(runs).values({ id: this.id, config, forkedFrom });
    await this.#version(0, null);
    return this;
  }

  /** Ends an iteration whose step made `version`. Both of its trials are scored. */
  async trainStep(
    iteration: number,
    version = iteration + 1,
    { take = 1, parent = iteration, reward = 1 } = {},
  ): Promise<void> {
    const at = this.#now();
    const key = { runId: this.id, iteration, take };
    await this.#group(
      `${iteration}.${take}/0`,
      {
        kind: 'train',
        iteration,
        take,
        policyVersion: parent,
        endedAt: at,
        batchIteration: iteration,
        batchTake: take,
      },
      reward,
    );
    await this.#db
      .insert(batches)
      .values({ ...key, sha256: 'b', path: 'b', samples: 2, trials: 2, metrics: { staleness_mean: 0 } });
    await this.#version(version, parent, {
      ...key,
      metrics: { 'actor/grad_norm': version, 'train/reward_mean': reward / 2 },
    });
    await this.#db.insert(iterations).values({
      ...key,
      status: 'done',
      policyVersion: parent,
      trainedVersion: version,
      seconds: { rollout: 30, batch: 1, train: 20, publish: 4 },
      endedAt: at,
    });
  }

  /** Evaluates a version: by schedule, or on demand for the n-th time. */
  async evaluate(version: number, n?: number): Promise<void> {
    const name = n === undefined ? `eval@${version}` : `eval@${version}.${n}`;
    await this.#group(`${name}/0`, { kind: 'eval', policyVersion: version, endedAt: this.#now() }, 1);
  }

  /** Evaluates a version, of which one trial has no outcome: its infrastructure failed, or the run was cancelled meanwhile. */
  async evaluateInPart(version: number): Promise<void> {
    await this.evaluate(version);
    await this.#setOutcome(version, null);
  }

  /** Ends an evaluation that a resumed run goes on with. */
  async finishEvaluation(version: number): Promise<void> {
    await this.#setOutcome(version, 'scored');
    await this.#db
      .update(groups)
      .set({ endedAt: this.#now() })
      .where(eq(groups.id, `${this.id}/eval@${version}/0`));
  }

  async #setOutcome(version: number, outcome: 'scored' | null): Promise<void> {
    const rewards = outcome === null ? null : { reward: 1 };
    await this.#db
      .update(trials)
      .set({ outcome, rewards })
      .where(eq(trials.id, `${this.id}-eval@${version}/0-0`));
  }

  /** Opens another take of an iteration, as `redo` does. */
  async redo(iteration: number): Promise<void> {
    await this.#db
      .update(iterations)
      .set({ status: 'superseded' })
      .where(and(eq(iterations.runId, this.id), eq(iterations.iteration, iteration)));
  }

  async end(status: RunStatus = 'completed'): Promise<void> {
    const endedAt = status === 'running' || status === 'blocked' ? null : new Date();
    await this.#db.update(runs).set({ status, endedAt }).where(eq(runs.id, this.id));
  }

  #now(): Date {
    this.#minutes += 1;
    return new Date(START + this.#minutes * 60_000);
  }

  async #version(
    version: number,
    parentVersion: number | null,
    more: { metrics?: Record<string, number> } = {},
  ): Promise<void> {
    await this.#db.insert(policyVersions).values({
      runId: this.id,
      version,
      parentVersion,
      stepKey: `${version}`,
      checkpoint: 'c',
      checkpointSha256: 'c',
      canary: { token_ids: [], logprobs: [] },
      ...more,
    });
  }

  async #group(
    id: string,
    group: Omit<typeof groups.$inferInsert, 'id' | 'runId' | 'ordinal' | 'task' | 'agent' | 'size'>,
    reward: number,
  ): Promise<void> {
    const row = { runId: this.id, ordinal: 0, task: 't', agent: 'oneshot', size: 2 };
    // A group ends after its trials.
    await this.#db.insert(groups).values({ ...row, ...group, id: `${this.id}/${id}`, endedAt: null });
    await this.#db.insert(trials).values(
      [reward, 0].map((value, index) => ({
        id: `${this.id}-${id}-${index}`,
        runId: this.id,
        groupId: `${this.id}/${id}`,
        trialIndex: index,
        task: 't',
        agent: 'oneshot',
        status: 'completed' as const,
        outcome: 'scored' as const,
        rewards: { reward: value },
      })),
    );
    await this.#db
      .update(groups)
      .set({ endedAt: group.endedAt })
      .where(eq(groups.id, `${this.id}/${id}`));
  }
}
