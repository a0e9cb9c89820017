import { expect, test } from 'vitest';
import { resolveConfig } from '../../config/resolve.ts';
import { gpuWorkerLaunch, metricsOf, ranksHere, trainerDtype } from './workers.ts';

const configured = (env: Record<string, string> = {}) =>
  resolveConfig({
    cwd: '/',
    env: { TRIALGATE_HOME: '/home', TRIALGATE_DEVICE: 'cpu', TRIALGATE_DTYPE: 'float32', ...env },
  }).config;

const OPTIONS = {
  temporalAddress: '127.0.0.1:7233',
  home: '/home',
  device: 'cpu',
  dtype: 'float32',
  ranks: configured(),
  gpus: null,
  trainerKeys: [],
  relay: null,
  metrics: {},
  logFormat: 'json',
} as const;

test('the GPU worker learns where the keys of trainer servers are, and no key', () => {
  const { env } = gpuWorkerLaunch({ ...OPTIONS, trainerKeys: ['server.example=TINKER_API_KEY'] });
  expect(env?.['TRIALGATE_TRAINER_KEYS']).toBe('["server.example=TINKER_API_KEY"]');
});

test('the GPU worker learns in which form it writes its log', () => {
  expect(gpuWorkerLaunch(OPTIONS).env?.['TRIALGATE_LOG_FORMAT']).toBe('json');
});

test('the workers of a deployment answer Prometheus at ports in a row, and nowhere unless that is asked for', () => {
  const at = configured({ TRIALGATE_METRICS_ADDRESS: '[::1]:9464' });
  const metrics = metricsOf(at, 2);
  expect([metricsOf(at, 0), metricsOf(at, 1)].map((each) => each.TRIALGATE_METRICS_ADDRESS)).toEqual([
    '[::1]:9464',
    '[::1]:9465',
  ]);
  expect(gpuWorkerLaunch({ ...OPTIONS, metrics }).env?.['TRIALGATE_METRICS_ADDRESS']).toBe('[::1]:9466');
  expect(gpuWorkerLaunch(OPTIONS).env).not.toHaveProperty('TRIALGATE_METRICS_ADDRESS');
  for (const wrong of ['9464', 'localhost:9464', '999.1.1.1:9464', '[abc]:1', '127.0.0.1:0', '127.0.0.1:65535'])
    expect(() => configured({ TRIALGATE_METRICS_ADDRESS: wrong })).toThrow(/metrics_address|TRIALGATE_METRICS_ADDRESS/);
});

test('the GPU worker gets the settings of its ranks, and leaves those that nobody set to its defaults', () => {
  const ranks = configured({
    TRIALGATE_RANKS: '2',
    TRIALGATE_LAUNCH: 'srun {python}',
    TRIALGATE_GROUP_ADDRESS: 'node:29400',
    TRIALGATE_PEAK_TFLOPS: '989',
    TRIALGATE_PACK_TOKENS: '1024',
    TRIALGATE_TRAINER_THREADS: '3',
    TRIALGATE_CPU_OFFLOAD: 'true',
    TRIALGATE_ACTIVATION_CHECKPOINTING: 'true',
  });
  const given =
    '--ranks 2 --launch srun {python} --group-address node:29400 --pack-tokens 1024 --threads 3 --peak-tflops 989 --activation-checkpointing --cpu-offload';
  expect(gpuWorkerLaunch({ ...OPTIONS, ranks }).args?.join(' ')).toMatch(
    new RegExp(`${given.replaceAll(/[{}]/g, '\\$&')}$`),
  );
  expect(gpuWorkerLaunch(OPTIONS).args?.slice(-2)).toEqual(['--ranks', '1']);
});

test('a trainer of several ranks, or with offloaded weights, computes in bfloat16, whatever the setting says', () => {
  expect(trainerDtype(configured()).dtype).toBe('float32');
  const why = 'several ranks compute in no other';
  expect(trainerDtype(configured({ TRIALGATE_RANKS: '2' }))).toEqual({ dtype: 'bfloat16', why });
  expect(trainerDtype(configured({ TRIALGATE_CPU_OFFLOAD: 'true' })).dtype).toBe('bfloat16');
});

test('a deployment knows where its ranks compute, unless a launch command of the user’s starts them', () => {
  const here = (env: Record<string, string>, trainer: string[] | null) =>
    ranksHere({ config: configured(env), gpus: { engine: null, trainer, isShared: false, isKnown: true } });
  expect(here({}, null)).toEqual({
    device: 'cpu',
    dtype: 'float32',
    count: 1,
    offload: false,
    recompute: false,
    packTokens: null,
    gpus: null,
  });
  const two = { TRIALGATE_RANKS: '2', TRIALGATE_CPU_OFFLOAD: 'true' };
  expect(here(two, ['1', '2'])).toEqual({
    device: 'cpu',
    dtype: 'bfloat16',
    count: 2,
    offload: true,
    recompute: false,
    packTokens: null,
    gpus: ['1', '2'],
  });
  expect(here({ ...two, TRIALGATE_LAUNCH: 'srun {python}' }, null)).toBeNull();
});
