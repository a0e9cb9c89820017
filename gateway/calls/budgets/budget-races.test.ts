import { expect, test } from 'vitest';
import { ASK, eventually, useGateway } from '../../../tests/support/harness/gateways.ts';

const gateway = useGateway();
const finishOf = async (reply: Response): Promise<unknown> => (await reply.json()).choices[0].finish_reason;

test('a late call of an earlier attempt does not use the budget of the current attempt', async () => {
  const first = await gateway.trial({ budgets: { calls: 1 } });
  const held = Promise.withResolvers<void>();
  let ending = 0;
  gateway.engine.beforeEnd = () => (ending++ === 0 ? held.promise : undefined);
  const late = first.chat(ASK);
  await eventually(() => ending === 1);
  const second = await gateway.trial({ trialId: first.id, attempt: 2, budgets: { calls: 1 } });
  expect(await finishOf(await second.chat(ASK))).toBe('stop');
  held.resolve();
  expect((await late).status).toBe(409);
});

test('a call whose body arrives after other calls used up the budget ends with `length`', async () => {
  const trial = await gateway.trial({ budgets: { calls: 1 } });
  const text = new TextEncoder().encode(JSON.stringify(ASK));
  const rest = Promise.withResolvers<void>();
  const body = new ReadableStream({
    async start(controller) {
      controller.enqueue(text.slice(0, 9));
      await rest.promise;
      controller.enqueue(text.slice(9));
      controller.close();
    },
  });
  const headers = { authorization: `Bearer ${trial.key}`, 'content-type': 'application/json' };
  const init: RequestInit & { duplex: 'half' } = { method: 'POST', headers, body, duplex: 'half' };
  const slow = fetch(`${trial.baseUrl}/chat/completions`, init);
  // Waits until its head is sent before the other's.
  await new Promise((resolve) => setTimeout(resolve, 100));
  expect(await finishOf(await trial.chat(ASK))).toBe('stop');
  rest.resolve();
  expect(await finishOf(await slow)).toBe('length');
});
