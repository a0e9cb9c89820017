import { expect, test, vi } from 'vitest';
import { gpuWorkerLaunch, ranksHere, trainerDtype } from './workers.ts';

const OPTIONS = {
  temporalAddress: '127.0.0.1:7233',
  home: '/home',
  device: 'cpu',
  dtype: 'float32',
  trainerKeys: [],
  relay: null,
} as const;

test('the GPU worker learns where the keys of trainer servers are, and no key', () => {
  const { env } = gpuWorkerLaunch({ ...OPTIONS, trainerKeys: ['server.example=TINKER_API_KEY'] });
  expect(env?.['TRIALGATE_TRAINER_KEYS']).toBe('["server.example=TINKER_API_KEY"]');
});

test('the GPU worker gets from the environment how its ranks are started, and no other setting', () => {
  const ranks = {
    TRIALGATE_RANKS: '2',
    TRIALGATE_LAUNCH: 'srun {python}',
    TRIALGATE_GROUP_ADDRESS: 'node:29400',
    TRIALGATE_PEAK_TFLOPS: '989',
  };
  for (const [name, value] of Object.entries({ ...ranks, TRIALGATE_HOLD: '/elsewhere' })) vi.stubEnv(name, value);
  const { env } = gpuWorkerLaunch(OPTIONS);
  vi.unstubAllEnvs();
  expect(env).toMatchObject(ranks);
  expect(env).not.toHaveProperty('TRIALGATE_HOLD');
});

test('a trainer of several ranks computes in bfloat16, whatever the setting says', () => {
  const wanted = { device: 'cpu', dtype: 'float32' } as const;
  expect(trainerDtype(wanted).dtype).toBe('float32');
  vi.stubEnv('TRIALGATE_RANKS', '2');
  expect(trainerDtype(wanted)).toEqual({ dtype: 'bfloat16', why: 'several ranks compute in no other' });
  vi.unstubAllEnvs();
});

test('a deployment knows on which device its ranks compute, unless a launch command of the user’s starts them', () => {
  const wanted = { device: 'cpu', dtype: 'float32' } as const;
  expect(ranksHere(wanted)).toEqual({ device: 'cpu', dtype: 'float32', count: 1 });
  vi.stubEnv('TRIALGATE_RANKS', '2');
  expect(ranksHere(wanted)).toEqual({ device: 'cpu', dtype: 'bfloat16', count: 2 });
  vi.stubEnv('TRIALGATE_LAUNCH', 'srun {python}');
  expect(ranksHere(wanted)).toBeNull();
  vi.unstubAllEnvs();
});
