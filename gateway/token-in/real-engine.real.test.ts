import { expect, test } from 'vitest';
import { withTemporaryStack } from '../../cli/testing/temporary-deployment.ts';
import { UndiciConnection } from '../node/engine-connection.ts';
import { converse } from '../testing/converse.ts';
import { detokenize } from '../testing/detokenize.ts';
import { recordFaults } from '../testing/record-faults.ts';
import { trialOverHttp } from '../testing/trial-over-http.ts';

test('a conversation with a real engine drifts, or its record differs from what the agent saw', async ({ signal }) => {
  const faults = await withTemporaryStack(async ({ plan }) => {
    const engine = new UndiciConnection(plan.engines[0] ?? '');
    const decode = (tokens: number[]) => detokenize(engine, tokens, signal);
    const conversations = Array.from({ length: 16 }, async (_, seed) => {
      const trial = await trialOverHttp({ url: plan.gatewayUrl, adminKey: plan.adminKey }, `real-${seed}`);
      const short = { max_tokens: 8, temperature: 1 };
      const chat = (body: Record<string, unknown>) => trial.chat({ ...short, ...body });
      const complete = (body: Record<string, unknown>) => trial.complete({ ...short, ...body });
      const steps = await converse(seed + 1, { chat, complete, tools: false, steps: 8 });
      return (await recordFaults({ steps, session: await trial.session(), samples: await trial.samples(), decode })).map((fault) => `seed ${seed + 1}: ${fault}`);
    });
    return Promise.all(conversations).finally(() => engine.close());
  }, signal, ['postgres', 'vllm', 'gateway']);
  expect(faults.flat()).toEqual([]);
});
