import { chmodSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { z } from 'zod';
import { resolveConfig } from '../../cli/config/resolve.ts';
import { startStack, type Stack } from '../../cli/supervisor/stack.ts';
import { UndiciConnection } from '../node/engine-connection.ts';
import { readText } from '../engines/connection.ts';
import { converse } from '../testing/converse.ts';
import { recordFaults } from '../testing/record-faults.ts';

let home: string;
let stack: Stack;
let engine: UndiciConnection;
beforeAll(async () => {
  home = mkdtempSync(join(tmpdir(), 'trialgate-'));
  chmodSync(home, 0o755);
  const ports = { TRIALGATE_GATEWAY_PORT: '0', TRIALGATE_TEMPORAL_PORT: '0', TRIALGATE_POSTGRES_PORT: '0' };
  const { config } = resolveConfig({ env: { TRIALGATE_HOME: home, ...ports }, cwd: home });
  stack = await startStack({ config, only: ['postgres', 'vllm', 'gateway'] }, new AbortController().signal);
  engine = new UndiciConnection(stack.plan.engines[0] ?? '');
}, 600_000);
afterAll(async () => {
  await engine?.close();
  await stack?.stop();
  rmSync(home, { recursive: true, force: true });
}, 60_000);

const opened = z.object({ api_key: z.string(), base_url: z.string() });

async function open(trialId: string) {
  const admin = { authorization: `Bearer ${stack.plan.adminKey}` };
  const get = async (path: string): Promise<unknown> => (await fetch(`${stack.plan.gatewayUrl}${path}`, { headers: admin })).json();
  const reply = await fetch(`${stack.plan.gatewayUrl}/sessions/${trialId}`, { method: 'POST', headers: admin });
  const { api_key, base_url } = opened.parse(await reply.json());
  const headers = { authorization: `Bearer ${api_key}`, 'content-type': 'application/json' };
  return {
    chat: (body: Record<string, unknown>) =>
      fetch(`${base_url}/chat/completions`, { method: 'POST', headers, body: JSON.stringify({ max_tokens: 8, temperature: 1, ...body }) }),
    session: () => get(`/sessions/${trialId}`),
    samples: () => get(`/sessions/${trialId}/samples`),
  };
}

async function decode(tokens: number[]): Promise<string> {
  const reply = await engine.send({ method: 'POST', path: '/detokenize', body: JSON.stringify({ tokens }), signal: AbortSignal.timeout(10_000) });
  const { prompt } = z.object({ prompt: z.string() }).parse(JSON.parse(await readText(reply.body)));
  return prompt.replace(/<\|(im_start|im_end|endoftext)\|>/g, '');
}

test('a conversation with a real engine drifts, or its record differs from what the agent saw', { timeout: 300_000 }, async () => {
  const faults = await Promise.all(
    Array.from({ length: 16 }, async (_, seed) => {
      const trial = await open(`real-${seed}`);
      const steps = await converse(seed + 1, { chat: trial.chat, tools: false, steps: 8 });
      return (await recordFaults({ steps, session: await trial.session(), samples: await trial.samples(), decode })).map((fault) => `seed ${seed + 1}: ${fault}`);
    }),
  );
  expect(faults.flat()).toEqual([]);
});
