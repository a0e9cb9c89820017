import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { longCalls } from '../../store/schema.ts';
import { eventually } from '../../tests/support/harness/gateways.ts';
import { useToyGateway } from '../../tests/support/harness/token-gateway.ts';

const gateway = useToyGateway();
const rows = () => gateway.db.select().from(longCalls);

test('a call that lasts is in the store with its engine while it lasts, and a short one never is', async () => {
  const trial = await gateway.trial();
  const messages = [{ role: 'user', content: 'x' }];
  await trial.chat({ messages });
  const freed = Promise.withResolvers<void>();
  gateway.toy.before = ({ path }) => (path === '/v1/chat/completions' ? freed.promise : undefined);
  const asked = trial.chat({ messages });
  await eventually(async () => (await rows()).length === 1, 20_000);
  expect(await rows()).toMatchObject([
    { trialId: trial.id, attempt: 1, engine: gateway.toy.url, stream: false, firstTokenAt: null, tokens: 0 },
  ]);
  freed.resolve();
  expect((await asked).status).toBe(200);
  await eventually(async () => (await rows()).length === 0);
  await sleep(100);
  expect(await rows()).toEqual([]);
});
