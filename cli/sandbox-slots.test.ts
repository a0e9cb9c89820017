import { Context } from '@temporalio/activity';
import { ApplicationFailure } from '@temporalio/common';
import type { WorkflowHandle } from '@temporalio/client';
import { NativeConnection, Worker } from '@temporalio/worker';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import type { GroupPlan } from '../activities/rollout/group-plan.ts';
import { HostSlots } from '../activities/sandbox/host-slots.ts';
import { until } from '../tests/support/harness/until.ts';
import { FakeWorld } from '../tests/support/fakes/fake-activities.ts';
import { withWorkers } from '../tests/support/harness/workflow-worker.ts';
import { useTemporal } from '../tests/support/harness/use-temporal.ts';
import { sandboxSlotOptions } from './sandbox-slots.ts';
import { SANDBOX_QUEUE, TASK_QUEUE } from '../core/task-queues.ts';

const environment = useTemporal();

type Key = { trialId: string; attempt: number };

/** A host that only counts its sandboxes, with the worker that opens them. */
class Host {
  readonly name: string;
  readonly slots: HostSlots;
  readonly opened: { trialId: string; at: number }[] = [];
  readonly held = new Set<string>();
  mostHeld = 0;
  allAtOnce = false;
  open: (key: Key) => Promise<void> = async () => {};
  agent: () => Promise<void> = async () => {};
  readonly #perSecond: number;

  constructor(name: string, limit: number, perSecond = 1000) {
    this.name = name;
    this.slots = new HostSlots(limit);
    this.#perSecond = perSecond;
  }

  #close({ trialId }: Key): void {
    this.held.delete(trialId);
    this.slots.release(trialId);
  }

  activities() {
    return {
      runAgent: async (key: Key) => (
        await this.agent(),
        this.held.has(key.trialId) ? { outcome: null, seconds: {} } : { outcome: 'infra_error', seconds: {} }
      ),
      verifyTrial: async (key: Key) => (this.#close(key), { outcome: null, rewards: { reward: 1 }, seconds: {} }),
      closeSandbox: async (key: Key) => this.#close(key),
    };
  }

  /** Starts the worker that opens sandboxes. Each has its own connection, because a process may poll a queue only once over one. */
  async opening(): Promise<{ worker: Worker; running: Promise<void> }> {
    const connection = await NativeConnection.connect({ address: environment.address });
    const openTrial = async (key: Key) => {
      await this.open(key);
      this.opened.push({ trialId: key.trialId, at: performance.now() });
      this.held.add(key.trialId);
      this.slots.hold(key.trialId);
      this.mostHeld = Math.max(this.mostHeld, this.held.size);
      return { finished: null, attempt: key.attempt, host: this.name };
    };
    const worker = await Worker.create({
      connection,
      namespace: environment.client.options.namespace,
      taskQueue: SANDBOX_QUEUE,
      activities: { openTrial },
      ...sandboxSlotOptions(this.slots, this.#perSecond, null),
    });
    return { worker, running: worker.run().finally(() => connection.close()) };
  }
}

async function withHosts<T>(world: FakeWorld, hosts: Host[], body: () => Promise<T>): Promise<T> {
  const openers = await Promise.all(hosts.map((host) => host.opening()));
  try {
    const queues = Object.fromEntries(hosts.map((host) => [host.name, host.activities()]));
    return await withWorkers(environment, { trialgate: world.general(), ...queues }, body);
  } finally {
    openers.forEach(({ worker }) => worker.shutdown());
    await Promise.all(openers.map(({ running }) => running));
  }
}

let serial = 0;
function startGroup(size: number): Promise<WorkflowHandle> {
  const id = `slots${++serial}/0.1/0`;
  const plan: GroupPlan = {
    id,
    trialPrefix: `slots${serial}`,
    runId: `slots${serial}`,
    kind: 'train',
    iteration: 0,
    take: 1,
    ordinal: 0,
    size,
    task: 't',
    agent: 'a',
    policyVersion: 0,
  };
  return environment.client.workflow.start('rolloutGroup', { workflowId: id, taskQueue: TASK_QUEUE, args: [plan] });
}

/** Runs a group that ends only when the host holds all its slots at once. */
async function useAllSlots(host: Host, limit: number): Promise<void> {
  host.open = async () => {};
  host.agent = async () => void (await until(() => host.allAtOnce || (host.allAtOnce = host.held.size === limit)));
  expect(await (await startGroup(limit)).result()).toEqual(Array(limit).fill('scored'));
}

test('a full host takes no more trials, and a host with free slots runs them', async () => {
  const [full, free] = [new Host('full', 2), new Host('free', 3)];
  const release = Promise.withResolvers<void>();
  full.agent = () => release.promise;
  await withHosts(new FakeWorld(), [full, free], async () => {
    const group = await startGroup(14);
    await until(() => free.opened.length === 12 && free.held.size === 0);
    expect(full.opened).toHaveLength(2);
    release.resolve();
    expect(await group.result()).toEqual(Array(14).fill('scored'));
  });
  expect(full.mostHeld).toBeLessThanOrEqual(2);
  expect(free.mostHeld).toBeLessThanOrEqual(3);
});

test('a worker opens a hundred sandboxes no faster than the configured rate', async () => {
  const host = new Host('paced', 100, 25);
  await withHosts(new FakeWorld(), [host], async () => (await startGroup(100)).result());
  const times = host.opened.map(({ at }) => at).toSorted((a, b) => a - b);
  expect(times).toHaveLength(100);
  // One sandbox may start at once, and one more that was polled before; the others follow every 40 ms.
  expect((times.at(-1) ?? 0) - (times[0] ?? 0)).toBeGreaterThan(97 * 40 - 200);
});

test('a sandbox that a worker cannot open frees its slot', async () => {
  const host = new Host('failing', 2);
  host.open = async ({ trialId, attempt }) => {
    if (attempt === 1) throw ApplicationFailure.nonRetryable('the disk is full');
    if (attempt === 2 && Context.current().info.attempt === 1) throw new Error(`${trialId}: try again`);
  };
  await withHosts(new FakeWorld(), [host], async () => {
    expect(await (await startGroup(6)).result()).toEqual(Array(6).fill('scored'));
    await useAllSlots(host, 2);
  });
});

test('opening a sandbox frees its slot when it is cancelled, before and after the sandbox was there', async () => {
  const host = new Host('cancelled', 3);
  const release = Promise.withResolvers<void>();
  host.open = async ({ trialId }) => {
    const context = Context.current();
    const beat = setInterval(() => context.heartbeat(), 100);
    // One opening reacts to its cancellation; the others end too late to notice it.
    await (trialId.endsWith('-0') ? context.cancelled : release.promise).finally(() => clearInterval(beat));
  };
  await withHosts(new FakeWorld(), [host], async () => {
    const group = await startGroup(5);
    await until(() => host.slots.free === 0);
    await group.cancel();
    await sleep(300);
    release.resolve();
    await group.result().catch(() => {});
    await until(() => host.held.size === 0);
    await useAllSlots(host, 3);
  });
  expect(host.mostHeld).toBeLessThanOrEqual(3);
});

test('a worker without a free slot can be stopped', async () => {
  const host = new Host('full', 1);
  host.slots.hold('somebody');
  const { worker, running } = await host.opening();
  await sleep(200);
  worker.shutdown();
  await running;
  host.slots.release('somebody');
  expect(host.slots.free).toBe(1);
});
