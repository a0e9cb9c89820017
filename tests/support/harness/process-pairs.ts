import { chmod, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { readEngineLog } from '../fakes/chaos-engine-log.ts';
import { writeTinyModel } from './tiny-model.ts';
import type { Deployment } from '../../../cli/config/schema.ts';
import { INSTALLS } from '../../../cli/folders.ts';
import { REPOSITORY } from '../../../core/repository.ts';
import { environment, type Component } from '../../../cli/supervisor/component.ts';
import { healthOf } from '../../../cli/supervisor/components/engine.ts';
import { gateway } from '../../../cli/supervisor/components/gateway.ts';
import { gpuWorker, worker } from '../../../cli/supervisor/components/workers.ts';
import type { Plan } from '../../../cli/supervisor/plan.ts';
import { startStack } from '../../../cli/supervisor/stack.ts';
import { ComponentProcess } from './component-process.ts';
import { temporaryDeployment } from './temporary-deployment.ts';

type Pair = readonly [ComponentProcess, ComponentProcess];
export type ProcessPairs = {
  config: Deployment;
  plan: Plan;
  /** A folder with a small model that the trainer can train. */
  model: string;
  gatewayUrls: readonly [string, string];
  engine: Pair;
  gateway: Pair;
  workflows: Pair;
  activities: Pair;
  gpu: Pair;
  /** Returns the number of replies that each engine has sampled. */
  sampled: () => number[];
  remove: () => Promise<void>;
};

/** Starts one PostgreSQL, one Temporal, and two of every other process, without a supervisor. The engines are fakes. */
export async function startProcessPairs(settings: Record<string, string>): Promise<ProcessPairs> {
  const folder = await mkdtemp(join(tmpdir(), 'trialgate-pairs-'));
  await chmod(folder, 0o755);
  const model = join(folder, 'model');
  writeTinyModel(model);
  const engines = [join(folder, 'engine-a'), join(folder, 'engine-b')] as const;
  const deployment = await temporaryDeployment({
    TRIALGATE_DEVICE: 'cpu',
    TRIALGATE_ENGINES: JSON.stringify(engines.map((path) => `unix:${path}.sock`)),
    TRIALGATE_GATEWAYS: '2',
    ...settings,
  });
  const { config } = deployment;
  const stack = await startStack({ config, only: ['postgres', 'temporal'] }, new AbortController().signal);
  const { plan } = stack;
  const [first, second] = plan.gateways;
  if (!first || !second) throw new Error('the plan has no two gateways');
  const pair = (name: string, a: Component, b: Component): Pair => [
    new ComponentProcess(a, join(folder, `${name}-a.log`)),
    new ComponentProcess(b, join(folder, `${name}-b.log`)),
  ];
  const pairs = {
    engine: pair('engine', engine(engines[0]), engine(engines[1])),
    gateway: pair('gateway', gateway(plan, first), gateway(plan, second)),
    workflows: pair('workflows', worker(plan, 'workflows'), worker(plan, 'workflows')),
    activities: pair('activities', worker(plan, 'activities'), worker(plan, 'activities')),
    gpu: pair('gpu', gpuWorker(plan), gpuWorker(plan)),
  };
  const all = Object.values(pairs).flat();
  const remove = async (): Promise<void> => {
    await Promise.all(all.map((each) => each.stop()));
    await stack.stop();
    await deployment.remove();
    await rm(folder, { recursive: true, force: true });
  };
  const sampled = () =>
    engines.map((path) => readEngineLog(`${path}.jsonl`).filter((entry) => entry.serial !== undefined).length);
  try {
    await Promise.all(all.map((each) => each.start()));
    return { config, plan, model, gatewayUrls: [first.url, second.url], ...pairs, sampled, remove };
  } catch (error) {
    await remove();
    throw error;
  }
}

function engine(path: string): Component {
  const [socket, log] = [`${path}.sock`, `${path}.jsonl`];
  return {
    name: 'engine',
    address: `unix:${socket}`,
    needs: [],
    launch: () => ({
      file: INSTALLS.node,
      args: [join(REPOSITORY, 'bench/chaos/engine.ts'), socket, log],
      env: environment({}),
    }),
    isReady: async (_pid, signal) => (await healthOf(socket, signal)) === 200,
    readyWithinMs: 60_000,
    stopSignal: 'SIGTERM',
    stopWithinMs: 5_000,
  };
}
