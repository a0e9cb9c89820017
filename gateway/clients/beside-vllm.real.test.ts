import { beforeAll, expect, test } from 'vitest';
import { TestPostgres } from '../../store/testing/postgres.ts';
import { startGateway } from '../node.ts';
import { withVllm } from '../testing/own-vllm.ts';
import { CLIENTS } from './all.ts';
import { clientBesideVllm, differs, firstDifference, isAnswered, ONE_AT_A_TIME, refusedIn, sessionBesideVllm, type Beside } from './beside-vllm.ts';
import type { Client } from './client.ts';
import { install } from './install.ts';

const ADMIN_KEY = 'the admin key';
const heard = new Map<string, { alone: Beside; session: Awaited<ReturnType<typeof sessionBesideVllm>> } | Error | string>();

beforeAll(async () => {
  const signal = AbortSignal.timeout(860_000);
  const postgres = await TestPostgres.create();
  try {
    await withVllm(async (vllm) => {
      const gateway = await startGateway({ host: '127.0.0.1', port: 0, engines: [vllm], databaseUrl: postgres.url, adminKey: ADMIN_KEY, secret: 'a secret of sixteen characters', settings: { tokenIn: false } });
      for (const client of CLIENTS) {
        const folder = await install(client, signal).catch((error: unknown) => heard.set(client.name, String(error)) && null);
        if (folder === null) continue;
        const at = { folder, gateway: { url: gateway.url, adminKey: ADMIN_KEY }, vllm, limitMs: 180_000, signal };
        const both = async () => ({ alone: await clientBesideVllm(client, at), session: await sessionBesideVllm(client, at) });
        heard.set(client.name, await both().catch((error: unknown) => (error instanceof Error ? error : new Error(String(error)))));
      }
      await gateway.close();
    }, signal, { args: ONE_AT_A_TIME, cacheGiB: 3, layers: 4 });
  } finally {
    await postgres.close();
  }
});

const found = ({ name }: Client, skip: (why: string) => never) => {
  const both = heard.get(name);
  if (both instanceof Error) throw both;
  return typeof both === 'object' ? both : skip(`${name} does not install: ${both}`);
};

/** What the gateway and vLLM itself answered to the same requests: equal, all recorded; and of no use for training, being greedy. */
function expectEqual({ compared, recorded }: Beside): void {
  expect(compared.filter(differs).map(firstDifference)).toEqual([]);
  const calls = compared.filter(isAnswered).length;
  expect(recorded).toMatchObject({ calls, unfinished: compared.length - calls, untrainable: calls, samples: 0 });
}

test.for(CLIENTS)('$name hears something else through the gateway than from vLLM itself, or a call of it is not in the record', (client, { skip }) => {
  const { alone } = found(client, skip);
  expect([alone.ran.code, alone.ran.timedOut], alone.ran.output.slice(-2_000)).toEqual([client.givesUp ? 1 : 0, false]);
  expect(alone.compared.filter(isAnswered).length).toBeGreaterThan(0);
  expectEqual(alone);
});

test.for(CLIENTS)('$name does not come to its end before an engine that says what it needs to hear, or a call of it is not recorded exactly', (client, { skip }) => {
  const { ran, recorded, generated } = found(client, skip).session.played;
  expect([ran.code, ran.timedOut], ran.output.slice(-2_000)).toEqual([0, false]);
  expect(recorded).toMatchObject({ calls: generated.length, unfinished: 0, realigned: 0, untrainable: 0 });
  expect(recorded.protocols).toContain(client.protocol);
  expect(recorded.clean > 0).toBe(client.rewrites !== true);
  expect(recorded.calls).toBeGreaterThan(1);
  // Every call that does not go on from another begins a sample, and all that was sampled is in one.
  expect(recorded.samples).toBe(recorded.calls - recorded.clean);
  expect(recorded.trained).toBe(generated.reduce((sum, { completion }) => sum + completion.length, 0));
});

test.for(CLIENTS)('$name: the turns of its session with tools are answered otherwise through the gateway than by vLLM itself, or one is left out', async (client, { skip, annotate }) => {
  const { session } = found(client, skip);
  const { played, compared } = session;
  expect(compared.length).toBe(played.recorded.calls);
  await annotate(`vLLM refused, by status: ${JSON.stringify(refusedIn(compared))} of ${compared.length}`);
  expect(compared.filter(isAnswered).length).toBeGreaterThanOrEqual(2);
  expectEqual(session);
});
