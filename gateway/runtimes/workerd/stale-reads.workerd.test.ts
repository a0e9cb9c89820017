import { afterEach, expect, test } from 'vitest';
import { startCachingProxy } from '../../../tests/support/fakes/caching-proxy.ts';
import { ASK, useGateway } from '../../../tests/support/harness/gateways.ts';

const gateway = useGateway();
let proxy: Awaited<ReturnType<typeof startCachingProxy>>;
afterEach(() => proxy.close());

async function serveBehindCache(options: { spares?: RegExp } = {}): Promise<void> {
  proxy = await startCachingProxy(gateway.postgres.url, options);
  await gateway.restart({ databaseUrl: proxy.url });
}

test('a Cloudflare Worker refuses to serve while a proxy before PostgreSQL caches queries', async () => {
  await serveBehindCache();
  const trial = await gateway.trial();
  for (const reply of [await trial.chat(ASK), await gateway.admin('POST', '/sessions/x')]) {
    expect([reply.status, (await reply.json()).error]).toEqual([
      500,
      expect.objectContaining({ code: 'missing_prerequisite', message: expect.stringContaining('--caching-disabled') }),
    ]);
  }
  expect(proxy.hits()).toBeGreaterThan(0);
  expect(gateway.engine.seen).toEqual([]);
});

test('behind a query cache that it did not notice, a Cloudflare Worker serves no closed attempt and asks no engine out of rotation', async () => {
  await serveBehindCache({ spares: /pg_stat_activity/ });
  gateway.engine.weightVersion = 'run@1';
  await gateway.givePool('run', 'run@1');
  const first = await gateway.trial({ runId: 'run' });
  expect((await first.chat(ASK)).status).toBe(200);
  expect((await first.chat(ASK)).status).toBe(200);
  await gateway.givePool('run', 'run@1', false);
  expect((await first.chat(ASK)).status).toBe(429);
  await gateway.givePool('run', 'run@1', true);
  const second = await gateway.trial({ trialId: first.id, attempt: 2, runId: 'run' });
  expect((await first.chat(ASK)).status).toBe(409);
  expect((await second.chat(ASK)).status).toBe(200);
  expect((await first.calls()).map((call) => call.status)).toEqual(['completed', 'completed', 'failed']);
  // The cache was on: a route that only shows data returned old data.
  const shown = async (): Promise<unknown[]> =>
    (await (await gateway.admin('GET', `/sessions/${first.id}?attempt=2`)).json()).turns;
  expect(await shown()).toHaveLength(1);
  expect((await second.chat(ASK)).status).toBe(200);
  expect([(await second.calls()).length, (await shown()).length, proxy.hits() > 0]).toEqual([2, 1, true]);
});
