import { beforeAll, expect, test } from 'vitest';
import { useTrlCases, type Said } from '../../tests/support/scenarios/trl-cases.ts';

// The other cases are in trl.real.test.ts, because together they take more than a minute.
const trl = useTrlCases();
let results: Said;
beforeAll(async () => {
  results = await trl.run('wrong key', 'one fails');
}, 180_000);

test('a wrong admin key ends the training with an error that says where the key is set', () => {
  expect(results['wrong key']).toMatch(/refuses the key .*set TRIALGATE_ADMIN_KEY/);
});

test('a trial that fails is tried again in another session; one that fails again is a masked token without a reward', () => {
  expect(results['one fails']).toEqual({
    rewards: [0.75, 0.75, null, 0.75],
    masks: [5, 5, 0, 5],
    lengths: [4],
    sessions: { 'say one': 3, 'say two': 3 },
    versions: [1, 1, 1, 1, 1],
  });
});
