import { expect, test } from 'vitest';
import { killUnderLoad } from '../../../tests/support/scenarios/kills.ts';

test('a reply whose end an agent saw is recorded exactly once, even if its gateway is killed', async () => {
  const counts = await killUnderLoad({ kills: 5, agents: 12 });
  expect(counts).toMatchObject({ kills: 5, lost: [], twice: [], unsampled: [], odd: [] });
  // The kills came while the gateway was under load and answered.
  expect(counts.ended).toBeGreaterThan(50);
  expect(counts.refused + counts.cut).toBeGreaterThan(0);
});
