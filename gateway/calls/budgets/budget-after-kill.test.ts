import { afterAll, beforeAll, expect, test } from 'vitest';
import { attemptKey } from '../../../core/keys.ts';
import { findTrial } from '../../../store/queries/find-trials.ts';
import { openAttempt } from '../../../store/queries/open-attempt.ts';
import { useDatabase } from '../../../tests/support/harness/use-database.ts';
import { expireReservations } from '../../../tests/support/harness/expire-reservations.ts';
import { FakeEngine } from '../../../tests/support/fakes/fake-engine.ts';
import { GatewayProcess } from '../../../tests/support/harness/gateway-process.ts';
import { ASK, eventually, SECRET } from '../../../tests/support/harness/gateways.ts';

const store = useDatabase();
let engine: FakeEngine;
let gateways: [GatewayProcess, GatewayProcess];
beforeAll(async () => {
  engine = await new FakeEngine().start();
  const options = { engines: [engine.url], databaseUrl: store.postgres.url, adminKey: 'the admin key', secret: SECRET };
  gateways = [new GatewayProcess(options), new GatewayProcess(options)];
  for (const gateway of gateways) await gateway.start();
});
afterAll(async () => {
  for (const gateway of gateways) await gateway.kill();
  await engine.stop();
});

test.each([{ calls: 2 }, { tokens: 10 }])(
  'the budget reservations of a killed gateway expire, and other calls can use that part of the budget: %j',
  async (budgets) => {
    const trialId = `killed-${Object.keys(budgets).join()}`;
    await openAttempt(store.db, { trialId, budgets });
    const authorization = `Bearer ${attemptKey(SECRET, trialId, 1)}`;
    const ask = ({ url }: GatewayProcess) =>
      fetch(`${url}/${trialId}/v1/chat/completions`, {
        method: 'POST',
        headers: { authorization },
        body: JSON.stringify({ ...ASK, max_tokens: 5 }),
      });
    const [dying, other] = gateways;
    const before = engine.seen.length;
    engine.beforeEnd = () => new Promise(() => {});
    const lost = [ask(dying), ask(dying)].map((reply) => expect(reply).rejects.toThrow());
    await eventually(() => engine.seen.length === before + 2);
    await dying.kill();
    await Promise.all(lost);
    engine.beforeEnd = () => {};
    const second = ask(other);
    expect(Object.keys((await findTrial(store.db, trialId))?.reserved ?? {})).toHaveLength(2);
    await expireReservations(store.db, trialId);
    expect((await (await second).json()).choices[0]).toMatchObject({
      finish_reason: 'stop',
      message: { content: expect.stringContaining('Hello') },
    });
    const trial = await findTrial(store.db, trialId);
    expect(trial).toMatchObject({ usedCalls: 1, usedTokens: 5, exhausted: null });
    expect(trial?.reserved).toEqual({});
    await dying.start();
  },
);
