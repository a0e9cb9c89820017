import { Client } from '@temporalio/client';
import { expect, test } from 'vitest';
import { groups, runs } from '../../store/schema.ts';
import { useDatabase } from '../../tests/support/harness/use-database.ts';
import { listRunningGroups } from './list-running-groups.ts';
import { runConfig } from '../../core/run-config/run-config.ts';

const store = useDatabase();

/** Returns a client of a Temporal that runs one workflow. */
const running = (only: string) => {
  const getHandle = (id: string) => ({
    describe: async () => ({ status: { name: id === only ? 'RUNNING' : 'COMPLETED' } }),
  });
  return Object.assign(new Client(), { workflow: { getHandle } });
};

test('a run’s running groups are those whose workflow still runs, also when the store has the group’s end', async () => {
  await store.db
    .insert(runs)
    .values({ id: 'run', config: runConfig.parse({ model: 'm', tasks: ['t'], iterations: 1 }) });
  const rows = [0, 1].map((ordinal) => ({
    id: `run/0.1/${ordinal}`,
    runId: 'run',
    kind: 'train' as const,
    iteration: 0,
    take: 1,
    ordinal,
    task: 't',
    agent: 'a',
    size: 2,
    policyVersion: 0,
  }));
  await store.db.insert(groups).values(rows.map((row) => ({ ...row, endedAt: new Date(), dropped: 'stale' as const })));
  expect(await listRunningGroups({ db: store.db, temporal: running('run/0.1/0') })({ runId: 'run' })).toEqual([
    'run/0.1/0',
  ]);
});
