import { expect, test } from 'vitest';
import { runConfig } from '../../core/run-config/run-config.ts';
import { runs } from '../../store/schema.ts';
import { useDatabase } from '../../tests/support/harness/use-database.ts';
import { readNetworkNotices } from './network-notices.ts';

const store = useDatabase();

test('`doctor` names each run under way whose agents use the host’s network, and no ended run', async () => {
  const config = (network: 'host' | 'gateway') =>
    runConfig.parse({ model: 'm', tasks: ['t'], iterations: 1, agents: ['oneshot'], network });
  await store.db.insert(runs).values([
    { id: 'closed', config: config('gateway') },
    { id: 'open', config: config('host') },
    { id: 'over', config: config('host'), status: 'completed' },
  ]);
  expect(await readNetworkNotices(store.db)).toEqual([
    expect.stringMatching(/^run open: the agents oneshot reach all that this host reaches/),
  ]);
});
