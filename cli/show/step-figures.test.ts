import { expect, test } from 'vitest';
import { stepFigures } from './step-figures.ts';

const metrics = {
  'perf/distinct_tokens_per_second': 12345.6,
  'perf/trained_tokens_per_second': 2345.6,
  'perf/compute_bits': 32,
  'perf/mfu/actor': 0.3141,
  'perf/max_host_memory_gb': 7.82,
  'perf/idle_share/max': 0.025,
  'rollout_corr/kl': 0.00042,
};

test('show says how the newest step used its devices', () => {
  expect(
    stepFigures([
      { iteration: 0, metrics: {} },
      { iteration: 1, metrics },
      { iteration: 2, metrics: {} },
    ]),
  ).toBe(
    'train step of iteration 1: 12,346 distinct tokens/s, 2,346 trained tokens/s, computed in float32, MFU 31.4 %, 7.8 GiB of main memory, idle 2.5 %, gap to the engine 4.2e-4 nats',
  );
});

test('show leaves out figures that were not measured, and the line when no step has any', () => {
  expect(stepFigures([{ iteration: 3, metrics: { 'perf/distinct_tokens_per_second': 10 } }])).toBe(
    'train step of iteration 3: 10 distinct tokens/s',
  );
  expect(stepFigures([{ iteration: 0, metrics: { 'actor/lr': 1 } }])).toBeNull();
});
