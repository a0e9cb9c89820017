import { expect, test } from 'vitest';
import { cutUnderLoad } from '../../tests/support/scenarios/relay-cuts.ts';
import { measureStreams } from './streams.ts';
import { cutsTable, streamsTable } from './tables.ts';

const { signal } = new AbortController();

test('streams through relay workers and by URL are read whole and recorded once, and the table has both and the difference', async () => {
  const loads = [{ name: 'few', streams: 8, tokens: 16, paceMs: 10, rounds: 2 }];
  const measured = await measureStreams({ loads, workers: 2, repeats: 1, signal });
  expect(measured).toMatchObject(
    ['by URL', 'relay'].map((way) => ({ way, begun: 16, complete: 16, errors: 0, lost: 0, twice: 0 })),
  );
  expect(measured.every(({ delayMs, firstMs }) => delayMs.count > 0 && firstMs.count > 0)).toBe(true);
  expect(streamsTable(measured).match(/^few /gm)).toHaveLength(3);
});

test('sockets of worker processes that are cut under load lose no reply that an agent saw, and record none twice', async () => {
  const counts = await cutUnderLoad({ cuts: 6, workers: 2, agents: 6, signal });
  expect(counts).toMatchObject({ lost: [], twice: [], unsampled: [], odd: [] });
  expect(counts.ended).toBeGreaterThan(0);
  expect(cutsTable(6, counts)).toContain('lost');
});
