import { Context } from '@temporalio/activity';
import type { TestWorkflowEnvironment } from '@temporalio/testing';
import { and, eq } from 'drizzle-orm';
import { runConfig, type RunConfig } from '../../core/run-config/run-config.ts';
import { startRun, type RunHandle } from '../../cli/run/start-run.ts';
import { recordsOver } from '../support/harness/records-over.ts';
import type { Database } from '../../store/database.ts';
import { iterations, trials } from '../../store/schema.ts';
import { FakeWorld } from '../support/fakes/fake-activities.ts';
import type { RunStatusReport } from '../../workflows/messages.ts';
import { withWorkers } from '../support/harness/workflow-worker.ts';

type Activity = (input: never) => Promise<unknown>;
type Records = ReturnType<typeof recordsOver>;
export type Scenario = (stage: Stage) => Promise<void>;

/** The surroundings of the scenarios: real workflows on a real Temporal and the real store, with fake engines, trainer and agents. */
export class Stage {
  readonly environment: TestWorkflowEnvironment;
  readonly db: Database;
  readonly home: string;
  readonly task: string;

  constructor({ environment, db, home, task }: Pick<Stage, 'environment' | 'db' | 'home' | 'task'>) {
    [this.environment, this.db, this.home, this.task] = [environment, db, home, task];
  }

  get client() {
    return this.environment.client;
  }

  get connected() {
    return { client: this.client, db: this.db };
  }

  config(settings: Record<string, unknown> = {}): RunConfig {
    return runConfig.parse({
      model: 'm',
      tasks: [this.task],
      iterations: 1,
      groups_per_iteration: 2,
      group_size: 2,
      ...settings,
    });
  }

  start(runId: string, settings: Record<string, unknown> = {}): Promise<RunHandle> {
    return startRun(this.client, runId, this.config(settings));
  }

  /** Runs `body` with activities over the real store. `change` replaces activities that a scenario makes fail. */
  async over(
    world: FakeWorld,
    body: () => Promise<void>,
    change: (real: Records) => Record<string, Activity> = () => ({}),
  ): Promise<void> {
    const records = recordsOver(world, { db: this.db, temporal: this.client, home: this.home });
    const { openTrial } = records;
    const { openTrial: sandboxes = openTrial, ...general } = change(records);
    const activities = {
      trialgate: { ...records, ...general },
      sandboxes: { openTrial: sandboxes },
      host: world.host(),
      gpu: world.gpu(),
    };
    await withWorkers(this.environment, activities, body);
  }

  /** Runs `body` with activities over a store in memory, for evaluations, which the activities over the real store lack. */
  async inMemory(world: FakeWorld, body: () => Promise<void>, own: Record<string, Activity> = {}): Promise<void> {
    const activities = {
      trialgate: { ...world.general(), ...own },
      sandboxes: world.sandboxes(),
      host: world.host(),
      gpu: world.gpu(),
    };
    await withWorkers(this.environment, activities, body);
  }

  async isDone(runId: string, iteration: number): Promise<boolean> {
    const rows = await this.db
      .select()
      .from(iterations)
      .where(and(eq(iterations.runId, runId), eq(iterations.iteration, iteration)));
    return rows.some(({ status }) => status === 'done');
  }

  async isCut(trialId: string): Promise<boolean> {
    return (await this.db.select().from(trials).where(eq(trials.id, trialId)))[0]?.outcome === 'cancelled';
  }

  async phaseIs(runId: string, phase: string): Promise<boolean> {
    return (await this.client.workflow.getHandle(runId).query<RunStatusReport>('status')).phase === phase;
  }

  /** Waits until the newest execution has ended, however it ends. */
  async ended(runId: string): Promise<void> {
    await this.client.workflow
      .getHandle(runId)
      .result()
      .catch(() => {});
  }
}

/** Makes the agents of the trials that `slow` matches run until `free` is called or they are cancelled. */
export function hold(world: FakeWorld, slow: RegExp): { held: Set<string>; free: () => void } {
  const freed = Promise.withResolvers<void>();
  const held = new Set<string>();
  world.runAgent = async ({ trialId }) => {
    if (!slow.test(trialId)) return { outcome: null, seconds: {} };
    held.add(trialId);
    const beat = setInterval(() => Context.current().heartbeat(), 200);
    await Promise.race([freed.promise, Context.current().cancelled]).finally(() => clearInterval(beat));
    return { outcome: null, seconds: {} };
  };
  return { held, free: () => freed.resolve() };
}
