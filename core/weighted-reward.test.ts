import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { z } from 'zod';
import { weightedReward } from './weighted-reward.ts';

const numbers = z.record(z.string(), z.number());
const file = join(import.meta.dirname, '../gpu-workers/trialgate_gpu/weighted_rewards.json');
const cases = z
  .array(z.object({ rewards: numbers, weights: numbers, weighted: z.number() }))
  .parse(JSON.parse(readFileSync(file, 'utf8')));

test.each(cases)(
  'the weighted reward of $rewards under the weights $weights is $weighted, as the trainer computes it',
  ({ rewards, weights, weighted }) => {
    expect(weightedReward(rewards, weights)).toBe(weighted);
  },
);
