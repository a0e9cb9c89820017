import { beforeAll, expect, test } from 'vitest';
import { TestPostgres } from '../../store/testing/postgres.ts';
import { startGateway } from '../node.ts';
import { withVllm } from '../testing/own-vllm.ts';
import { CLIENTS } from './all.ts';
import { clientBesideVllm, differs, firstDifference, ONE_AT_A_TIME } from './beside-vllm.ts';
import { install } from './install.ts';

const ADMIN_KEY = 'the admin key';
const heard = new Map<string, Awaited<ReturnType<typeof clientBesideVllm>> | string>();

beforeAll(async () => {
  const signal = AbortSignal.timeout(860_000);
  const postgres = await TestPostgres.create();
  try {
    await withVllm(async (vllm) => {
      const gateway = await startGateway({ host: '127.0.0.1', port: 0, engines: [vllm], databaseUrl: postgres.url, adminKey: ADMIN_KEY, secret: 'a secret of sixteen characters', settings: { tokenIn: false } });
      for (const client of CLIENTS) {
        const folder = await install(client, signal).catch((error: unknown) => heard.set(client.name, String(error)) && null);
        if (folder !== null) heard.set(client.name, await clientBesideVllm(client, { folder, gateway: { url: gateway.url, adminKey: ADMIN_KEY }, vllm, limitMs: 180_000, signal }));
      }
      await gateway.close();
    }, signal, { args: ONE_AT_A_TIME, cacheGiB: 3, layers: 4 });
  } finally {
    await postgres.close();
  }
});

test.for(CLIENTS)('$name hears something else through the gateway than from vLLM itself, or a call of it is not in the record', ({ name }, { skip }) => {
  const found = heard.get(name);
  if (typeof found === 'string' || !found) return skip(`${name} does not install: ${found}`);
  expect(found.ran.timedOut, found.ran.output.slice(-2_000)).toBe(false);
  expect(found.compared.length).toBeGreaterThan(0);
  expect(found.recorded).toMatchObject({ calls: found.compared.length, unfinished: 0 });
  expect(found.compared.filter(differs).map(firstDifference)).toEqual([]);
});
