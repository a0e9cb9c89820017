import type { TestWorkflowEnvironment } from '@temporalio/testing';
import { confirmedReplicas } from '../../../tests/support/fakes/confirmed-replicas.ts';
import { allActivities, type AllActivities } from '../../../tests/support/harness/all-activities.ts';
import { Graders } from '../../../activities/reward/graders.ts';
import { HostSandboxes } from '../../../activities/sandbox/host-sandboxes.ts';
import type { PublishInput, TrainStepInput } from '../../../core/gpu-contract.ts';
import { whileHeartbeating } from '../../../activities/temporal/while-heartbeating.ts';
import { outlineOf } from '../../../store/calls/outline.ts';
import type { Database } from '../../../store/database.ts';
import { completeTrial } from '../../../store/queries/complete-trial.ts';
import { recordCalls } from '../../../store/queries/record-calls.ts';
import type { Durations } from '../simulate/durations.ts';
import { SlotEngine, type SlotUse } from './engine.ts';

export type WorldOptions = {
  slots: number;
  /** The number of sandboxes that the host holds at once. */
  sandboxes: number;
  durations: Durations;
  medianSeconds: number;
  /** In medians, as in the simulation. */
  deadline: number;
  trainTime: number;
  publishTime: number;
};

type AgentInput = Parameters<AllActivities['runAgent']>[0];
export type TrialUse = SlotUse & { trialId: string; duration: number };

/**
 * The activities over the real store and sandboxes, with agents that hold a slot of an engine for a drawn time and record one call, and
 * a trainer that takes a given time.
 */
export class World {
  readonly engine: SlotEngine;
  /** All trials that had a slot. */
  readonly attempted: TrialUse[] = [];
  /** The start of each train step on the machine's clock, and its starting version. */
  readonly steps: { wall: number; version: number }[] = [];
  readonly #options: WorldOptions;
  readonly #db: Database;
  readonly #real: AllActivities;
  readonly #sandboxes: HostSandboxes;
  /** The ordinal of each group's id, in the order in which groups were planned. */
  readonly #ordinals = new Map<string, number>();

  constructor(
    options: WorldOptions,
    { db, environment, home }: { db: Database; environment: TestWorkflowEnvironment; home: string },
  ) {
    this.#options = options;
    this.#db = db;
    this.engine = new SlotEngine(options.slots);
    this.#sandboxes = new HostSandboxes(home, options.sandboxes);
    this.#real = allActivities({
      db,
      temporal: environment.client,
      gatewayUrls: [],
      home,
      secret: 'a secret of sixteen characters',
      hostQueue: 'host',
      sandboxes: this.#sandboxes,
      graders: new Graders(home),
    });
  }

  general() {
    const {
      runAgent: _agent,
      verifyTrial: _verify,
      closeSandbox: _close,
      openTrial: _open,
      planGroups,
      ...real
    } = this.#real;
    return {
      ...real,
      planGroups: async (input: Parameters<typeof planGroups>[0]) => {
        const rollout = await planGroups(input);
        for (const { trialPrefix } of rollout.plans)
          if (!this.#ordinals.has(trialPrefix)) this.#ordinals.set(trialPrefix, this.#ordinals.size);
        return rollout;
      },
    };
  }

  openings() {
    return { openTrial: this.#real.openTrial };
  }

  host() {
    return {
      runAgent: (input: AgentInput) => whileHeartbeating((signal) => this.#runAgent(input, signal)),
      closeSandbox: this.#real.closeSandbox,
      verifyTrial: async (input: { trialId: string; attempt: number }) => {
        await completeTrial(this.#db, input);
        await this.#sandboxes.close(input);
        return { outcome: null, rewards: { reward: Number(input.trialId.at(-1)) % 2 }, seconds: {} };
      },
    };
  }

  gpu() {
    const { medianSeconds, trainTime, publishTime } = this.#options;
    const checkpoint = {
      checkpoint: '/none',
      checkpoint_sha256: 'none',
      canary: { token_ids: [1], logprobs: [0] },
      metrics: {},
    };
    return {
      loadBase: async () => checkpoint,
      trainStep: async ({ version }: TrainStepInput) => {
        this.steps.push({ wall: performance.now() / 1000, version: this.engine.version });
        await new Promise((resolve) => setTimeout(resolve, trainTime * medianSeconds * 1000));
        return { ...checkpoint, step_key: `step-${version}`, reused: false };
      },
      publishPolicy: async (input: PublishInput) => {
        await this.engine.publish(publishTime * medianSeconds, Number(input.weight_version.split('@')[1]));
        return { replicas: confirmedReplicas(input) };
      },
    };
  }

  async #runAgent({ trialId, attempt }: AgentInput, signal: AbortSignal) {
    const { medianSeconds, deadline } = this.#options;
    const duration = this.#durationOf(trialId);
    const sampled = await this.engine.sample(Math.min(duration, deadline) * medianSeconds, signal);
    if (sampled) this.attempted.push({ ...sampled, trialId, duration });
    if (!sampled?.completed) throw signal.reason;
    await record(this.#db, { trialId, attempt }, sampled.version);
    return { outcome: duration > deadline ? ('truncated' as const) : null, seconds: { agent: sampled.seconds } };
  }

  #durationOf(trialId: string): number {
    const cut = trialId.lastIndexOf('-');
    const group = this.#ordinals.get(trialId.slice(0, cut));
    const duration =
      group === undefined ? undefined : this.#options.durations.of(group)[Number(trialId.slice(cut + 1))];
    if (duration === undefined) throw new Error(`trial ${trialId} is of no group that was planned`);
    return duration;
  }
}

/** Records one call of 8 sampled tokens. */
async function record(db: Database, key: { trialId: string; attempt: number }, policyVersion: number): Promise<void> {
  const [id, now] = [crypto.randomUUID(), new Date()];
  const completionTokenIds = Int32Array.from({ length: 8 }, (_, i) => i);
  const choice = {
    id,
    completionTokenIds,
    logprobs: new Float32Array(8),
    finishReason: 'stop',
    policyVersion,
    versionSpans: null,
    untrainable: null,
  };
  await recordCalls(db, [
    {
      ...key,
      id,
      status: 'completed',
      protocol: 'chat_completions',
      httpStatus: 200,
      stream: false,
      startedAt: now,
      endedAt: now,
      request: outlineOf({ model: 'policy', messages: [{ role: 'user', content: 'go' }] }),
      response: null,
      promptTokenIds: Int32Array.from([1, 2]),
      sampling: { temperature: 1 },
      choices: [choice],
    },
  ]);
}
