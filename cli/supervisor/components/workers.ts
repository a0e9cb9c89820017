import path from 'node:path';
import type { LogFormat } from '../../../core/log.ts';
import { relayKey } from '../../../core/keys.ts';
import { hostOf, portOf, type Deployment } from '../../config/schema.ts';
import type { RANK_KEYS } from '../../config/settings.ts';
import { INSTALLS } from '../../folders.ts';
import { fileLogFormatOf } from '../../process-log.ts';
import { environment, type Component, type Launch } from '../component.ts';
import { deviceOf, dtypeOf, type ChosenDtype, type Dtype } from '../device.ts';
import { onlyGpus } from '../gpus.ts';
import type { Plan } from '../plan.ts';
import { metricsPorts, requireFree } from '../ports.ts';
import type { RanksState } from '../state.ts';
import { temporalCli } from './temporal.ts';

type PolledQueue = { queue: string; type: 'workflow' | 'activity' };

/** Returns the worker for workflows or for activities. They are separate processes, so that one may die without the other. */
export function worker(plan: Plan, only: 'workflows' | 'activities'): Component {
  const type = only === 'workflows' ? 'workflow' : 'activity';
  const nth = only === 'workflows' ? 0 : 1;
  const component = polling(
    plan,
    `${type}-worker`,
    { queue: 'trialgate', type },
    only === 'workflows' ? ['temporal'] : ['temporal', 'postgres'],
    {
      file: INSTALLS.node,
      args: [INSTALLS.main, 'worker', '--only', only],
      env: environment({
        TRIALGATE_HOME: plan.config.home,
        TRIALGATE_TEMPORAL_ADDRESS: plan.temporalAddress,
        TRIALGATE_DATABASE_URL: plan.databaseUrl,
        TRIALGATE_GATEWAY_URL: plan.gatewayUrls.join(','),
        TRIALGATE_SECRET: plan.secret,
        TRIALGATE_UNSANDBOXED: String(plan.config.unsandboxed),
        TRIALGATE_MAX_SANDBOXES: String(plan.config.max_sandboxes),
        TRIALGATE_SANDBOXES_PER_SECOND: String(plan.config.sandboxes_per_second),
        TRIALGATE_WARM_SANDBOXES: String(plan.config.warm_sandboxes),
        TRIALGATE_WAIT_FOR_MEMORY: String(plan.config.wait_for_memory),
        TRIALGATE_ENGINES: JSON.stringify(plan.engines),
        ...metricsOf(plan.config, nth),
        TRIALGATE_LOG_FORMAT: fileLogFormatOf(plan.config),
        XDG_CACHE_HOME: plan.folders.cache,
      }),
      cwd: plan.folders.home,
    },
  );
  return { ...component, prepare: () => requireMetricsPort(plan, nth, `the ${component.name}`) };
}

/** @throws TrialgateError when something else listens where the n-th worker of a deployment is to answer Prometheus */
async function requireMetricsPort({ config }: Plan, n: number, who: string): Promise<void> {
  const port = metricsPorts(config)[n];
  if (port !== undefined) await requireFree(port.wanted, port.host, `${who}'s metrics`, port.key);
}

/** Returns the variable that tells the n-th worker of a deployment where it answers Prometheus. */
export function metricsOf(
  { metrics_address: address }: Pick<Deployment, 'metrics_address'>,
  n: number,
): {
  TRIALGATE_METRICS_ADDRESS?: string;
} {
  if (address === undefined) return {};
  return { TRIALGATE_METRICS_ADDRESS: `${hostOf(address)}:${portOf(address) + n}` };
}

export function gpuWorker(plan: Plan): Component {
  const { dtype, why } = trainerDtype(plan.config);
  const component = polling(
    plan,
    'gpu-worker',
    { queue: 'gpu', type: 'activity' },
    ['temporal'],
    gpuWorkerLaunch({
      temporalAddress: plan.temporalAddress,
      home: plan.config.home,
      device: deviceOf(plan.config.device),
      dtype: dtypeOf(plan.config).dtype,
      ranks: plan.config,
      gpus: plan.gpus?.trainer ?? null,
      trainerKeys: plan.config.trainer_keys,
      relay: { gatewayUrls: plan.gatewayUrls, secret: plan.secret },
      metrics: metricsOf(plan.config, 2),
      logFormat: fileLogFormatOf(plan.config),
    }),
  );
  return {
    ...component,
    address: `${component.address}, ${dtype} (${why})`,
    prepare: () => requireMetricsPort(plan, 2, 'the GPU worker'),
  };
}

/** Returns where the GPU worker's ranks compute, or null if a launch command of the user's starts them, perhaps on other machines. */
export function ranksHere({ config, gpus }: Pick<Plan, 'config' | 'gpus'>): RanksState | null {
  if (config.launch !== undefined) return null;
  const { ranks: count, cpu_offload: offload } = config;
  return {
    device: deviceOf(config.device),
    dtype: trainerDtype(config).dtype,
    count,
    offload,
    recompute: config.activation_checkpointing,
    packTokens: config.pack_tokens ?? null,
    gpus: gpus?.trainer ?? null,
  };
}

/** Returns the dtype of the trainer. Weights that are divided over ranks or offloaded are gathered in bfloat16, whatever is wanted. */
export function trainerDtype(config: Pick<Deployment, 'device' | 'dtype' | 'ranks' | 'cpu_offload'>): ChosenDtype {
  if (config.ranks > 1) return { dtype: 'bfloat16', why: 'several ranks compute in no other' };
  return config.cpu_offload ? { dtype: 'bfloat16', why: 'cpu_offload computes in no other' } : dtypeOf(config);
}

type Ranks = Pick<Deployment, (typeof RANK_KEYS)[number]>;

type GpuWorkerOptions = {
  temporalAddress: string;
  home: string;
  device: string;
  dtype: Dtype;
  ranks: Ranks;
  /** The GPUs that its ranks see; null for all. */
  gpus: readonly string[] | null;
  /** The places of the keys of trainer servers. */
  trainerKeys: readonly string[];
  /** The way to engines behind relay workers. Null when it reaches none. */
  relay: { gatewayUrls: readonly string[]; secret: string } | null;
  metrics: { TRIALGATE_METRICS_ADDRESS?: string };
  logFormat: LogFormat;
};

export function gpuWorkerLaunch(options: GpuWorkerOptions): Launch {
  const [gateway] = options.relay?.gatewayUrls ?? [];
  return {
    file: INSTALLS.python,
    args: [
      '-m',
      'trialgate_gpu',
      '--temporal-address',
      options.temporalAddress,
      '--home',
      options.home,
      '--device',
      options.device,
      ...rankArguments(options.ranks),
    ],
    env: environment({
      PYTHONPATH: INSTALLS.gpuWorkers,
      PYTHONUNBUFFERED: '1',
      PYTHONDONTWRITEBYTECODE: '1',
      XDG_CACHE_HOME: path.join(options.home, 'cache'),
      TRIALGATE_DTYPE: options.dtype,
      ...onlyGpus(options.gpus),
      TRIALGATE_TRAINER_KEYS: JSON.stringify(options.trainerKeys),
      ...(options.relay && gateway !== undefined
        ? { TRIALGATE_RELAY_URL: gateway, TRIALGATE_RELAY_KEY: relayKey(options.relay.secret) }
        : {}),
      ...options.metrics,
      TRIALGATE_LOG_FORMAT: options.logFormat,
    }),
    cwd: options.home,
  };
}

function rankArguments(ranks: Ranks): string[] {
  const given = {
    '--ranks': ranks.ranks,
    '--launch': ranks.launch,
    '--group-address': ranks.group_address,
    '--pack-tokens': ranks.pack_tokens,
    '--threads': ranks.trainer_threads,
    '--peak-tflops': ranks.peak_tflops,
  };
  return [
    ...Object.entries(given).flatMap(([flag, value]) => (value === undefined ? [] : [flag, String(value)])),
    ...(ranks.activation_checkpointing ? ['--activation-checkpointing'] : []),
    ...(ranks.cpu_offload ? ['--cpu-offload'] : []),
  ];
}

/** Returns a worker's component. It is ready when Temporal has seen its process poll the queue. */
function polling(plan: Plan, name: string, polled: PolledQueue, needs: string[], launch: Launch): Component {
  return {
    name,
    address: `task queue ${polled.queue}`,
    needs,
    launch: () => launch,
    isReady: async (pid, signal) => {
      const args = [
        'task-queue',
        'describe',
        '--task-queue',
        polled.queue,
        '--task-queue-type',
        polled.type,
        '--output',
        'json',
      ];
      return (await temporalCli(plan, args, signal)).includes(`"${pid}@`);
    },
    readyWithinMs: 180_000,
    stopSignal: 'SIGTERM',
    stopWithinMs: 15_000,
  };
}
