import { expect, test } from 'vitest';
import { runConfig } from '../../core/run-config/run-config.ts';
import { useTokenEngines } from '../../tests/support/fakes/token-engines.ts';
import { DEPLOYMENT_POOL, replicas } from '../../store/schema.ts';
import { useDatabase } from '../../tests/support/harness/use-database.ts';
import { runNotices } from './run-notices.ts';

const store = useDatabase();
const startEngine = useTokenEngines();

test('only engines that the run file names, else the deployment’s, decide whether a run gets the warning on its sampling', async () => {
  const [masked, plain, another] = [
    await startEngine({ mask: (id) => [id] }),
    await startEngine(),
    await startEngine(),
  ];
  await store.db.insert(replicas).values([
    { url: masked, pool: DEPLOYMENT_POOL },
    { url: another, pool: 'another run' },
  ]);
  const notices = (named: string[]) =>
    runNotices(
      store.db,
      runConfig.parse({ model: 'm', tasks: ['t'], iterations: 1, sampling: { top_p: 0.8 }, engines: named }),
    );
  expect(await notices([])).toEqual([]);
  expect(await notices([plain])).toEqual([
    { nothingTrains: true, text: expect.stringContaining(`${plain} does not return sampling masks`) },
  ]);
});

test('a run whose agents use the host’s network gets a warning that names them', async () => {
  const config = runConfig.parse({ model: 'm', tasks: ['t'], iterations: 1, network: 'host', agents: ['oneshot'] });
  expect(await runNotices(store.db, config)).toEqual([
    { nothingTrains: false, text: expect.stringContaining('oneshot reach all that this host reaches') },
  ]);
});
