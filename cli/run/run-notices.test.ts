import { afterEach, expect, test } from 'vitest';
import { runConfig } from '../../activities/run-config.ts';
import { TokenEngine } from '../../gateway/testing/token-engine.ts';
import { DEPLOYMENT_POOL, replicas } from '../../store/schema.ts';
import { useDatabase } from '../../store/testing/use-database.ts';
import { runNotices } from './run-notices.ts';

const store = useDatabase();
const engines: TokenEngine[] = [];
afterEach(async () => void (await Promise.all(engines.splice(0).map((engine) => engine.stop()))));

async function engineWith(mask: TokenEngine['mask']): Promise<string> {
  const engine = Object.assign(await new TokenEngine().start(), { mask });
  engines.push(engine);
  return engine.url;
}

test("a run's sampling is judged by the engines that its file names, otherwise by the deployment's, never by those of other runs", async () => {
  const [masked, plain, another] = [await engineWith((id) => [id]), await engineWith(null), await engineWith(null)];
  await store.db.insert(replicas).values([{ url: masked, pool: DEPLOYMENT_POOL }, { url: another, pool: 'another run' }]);
  const notices = (named: string[]) => runNotices(store.db, runConfig.parse({ model: 'm', tasks: ['t'], iterations: 1, sampling: { top_p: 0.8 }, engines: named }));
  expect(await notices([])).toEqual([]);
  expect(await notices([plain])).toEqual([expect.stringContaining(`${plain} does not return sampling masks`)]);
});

test('a run with the network of the host is warned of', async () => {
  const config = runConfig.parse({ model: 'm', tasks: ['t'], iterations: 1, network: 'host', agents: ['oneshot'] });
  expect(await runNotices(store.db, config)).toEqual([expect.stringContaining('oneshot reach all that this host reaches')]);
});
