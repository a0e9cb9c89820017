import { afterEach, beforeEach, expect, test } from 'vitest';
import { replicas } from '../../store/schema.ts';
import { ADMIN_KEY, SECRET } from '../../tests/support/harness/gateways.ts';
import { TestWorker } from '../../tests/support/harness/relay.ts';
import { useTokenGateway } from '../../tests/support/harness/token-gateway.ts';
import { getFromEngine } from './get-from-engine.ts';
import { readWeightVersion } from './read-weight-version.ts';

const gateway = useTokenGateway({ engines: ['relay'] });
let worker: TestWorker;
beforeEach(async () => {
  worker = new TestWorker({
    gateway: gateway.gateway.url,
    engine: gateway.toy.url,
    adminKey: ADMIN_KEY,
    id: 'w1',
  });
  await expect.poll(() => gateway.db.select().from(replicas)).toHaveLength(1);
});
afterEach(async () => {
  await worker.stop();
  await gateway.db.delete(replicas);
});

const route = (given: { gatewayUrls?: string[]; secret?: string } = {}) => ({
  gatewayUrls: [gateway.gateway.url],
  secret: SECRET,
  ...given,
});

test('an engine behind a relay worker is asked through the gateway that has the worker', async () => {
  gateway.toy.weightVersion = 'run@7';
  expect(await readWeightVersion('relay:w1', route())).toBe('run@7');
  const models = await getFromEngine('relay:w1', '/v1/models', 5_000, route());
  expect([models.status, JSON.parse(models.text)]).toMatchObject([200, { data: [{ id: 'policy' }] }]);
});

test('a path that the relay worker refuses gets 403, a worker that is not there 421 and another secret 401; without a gateway nothing is asked', async () => {
  const ask = async (url: string, path: string, given = {}) =>
    (await getFromEngine(url, path, 5_000, route(given))).status;
  expect(await ask('relay:w1', '/secret')).toBe(403);
  expect(await ask('relay:nobody', '/v1/models')).toBe(421);
  expect(await ask('relay:w1', '/v1/models', { secret: 'another secret of sixteen' })).toBe(401);
  await expect(ask('relay:w1', '/v1/models', { gatewayUrls: [] })).rejects.toThrow('no gateway is known');
});
