import { expect, test } from 'vitest';
import { killUnderLoad } from '../../../tests/support/scenarios/kills.ts';

test('a reply whose end an agent saw is recorded exactly once, even if its gateway is killed', async () => {
  const counts = await killUnderLoad({ kills: 3, agents: 12 });
  expect(counts).toMatchObject({ kills: 3, lost: [], twice: [], unsampled: [], odd: [] });
  // The kills came while the gateway was under load and answered.
  expect(counts.ended).toBeGreaterThan(30);
  expect(counts.refused + counts.cut).toBeGreaterThan(0);
});
