import { chmodSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { z } from 'zod';
import { resolveConfig } from '../../cli/config/resolve.ts';
import { startStack, type Stack } from '../../cli/supervisor/stack.ts';
import { startsWith } from '../../store/samples/build-samples.ts';
import { UndiciConnection } from '../node/engine-connection.ts';
import { readText } from '../engines/connection.ts';
import { converse, type Step } from '../testing/converse.ts';

let home: string;
let stack: Stack;
let engine: UndiciConnection;
beforeAll(async () => {
  home = mkdtempSync(join(tmpdir(), 'trialgate-'));
  chmodSync(home, 0o755);
  const ports = { TRIALGATE_GATEWAY_PORT: '0', TRIALGATE_TEMPORAL_PORT: '0', TRIALGATE_POSTGRES_PORT: '0' };
  const { config } = resolveConfig({ env: { TRIALGATE_HOME: home, ...ports }, cwd: home });
  stack = await startStack({ config, only: ['postgres', 'vllm', 'gateway'] }, AbortSignal.timeout(600_000));
  engine = new UndiciConnection(stack.plan.engines[0] ?? '');
}, 600_000);
afterAll(async () => {
  await engine?.close();
  await stack?.stop();
  rmSync(home, { recursive: true, force: true });
}, 60_000);

const ids = z.array(z.number());
const turn = z.object({ call_id: z.string(), prompt_token_ids: ids, completion_token_ids: ids, continuation: z.string().nullable(), parent_call_id: z.string().nullable() });
const session = z.object({ turns: z.array(turn) });
const opened = z.object({ api_key: z.string(), base_url: z.string() });
const sampleList = z.object({ samples: z.array(z.object({ token_ids: ids, loss_mask: ids, call_ids: z.array(z.string()) })) });

async function open(trialId: string) {
  const admin = { authorization: `Bearer ${stack.plan.adminKey}` };
  const get = async (path: string): Promise<unknown> => (await fetch(`${stack.plan.gatewayUrl}${path}`, { headers: admin })).json();
  const reply = await fetch(`${stack.plan.gatewayUrl}/sessions/${trialId}`, { method: 'POST', headers: admin });
  const { api_key, base_url } = opened.parse(await reply.json());
  const headers = { authorization: `Bearer ${api_key}`, 'content-type': 'application/json' };
  return {
    chat: (body: Record<string, unknown>) =>
      fetch(`${base_url}/chat/completions`, { method: 'POST', headers, body: JSON.stringify({ max_tokens: 8, temperature: 1, ...body }) }),
    turns: async () => session.parse(await get(`/sessions/${trialId}`)).turns,
    samples: async () => sampleList.parse(await get(`/sessions/${trialId}/samples`)).samples,
  };
}

async function detokenize(tokens: number[]): Promise<string> {
  const reply = await engine.send({ method: 'POST', path: '/detokenize', body: JSON.stringify({ tokens }), signal: AbortSignal.timeout(10_000) });
  return z.object({ prompt: z.string() }).parse(JSON.parse(await readText(reply.body))).prompt;
}

test('a conversation with a real engine drifts, or its record differs from what the agent saw', { timeout: 300_000 }, async () => {
  const drifted: string[] = [];
  await Promise.all(
    Array.from({ length: 16 }, async (_, seed) => {
      const trial = await open(`real-${seed}`);
      const steps = await converse(seed + 1, { chat: trial.chat, tools: false, steps: 8 });
      drifted.push(...(await faultsOf(steps, await trial.turns(), await trial.samples())).map((fault) => `seed ${seed + 1}: ${fault}`));
    }),
  );
  expect(drifted).toEqual([]);
});

async function faultsOf(steps: Step[], turns: z.output<typeof turn>[], samples: z.output<typeof sampleList>['samples']): Promise<string[]> {
  const faults: string[] = [];
  const byId = new Map(turns.map((each) => [each.call_id, each]));
  for (const [i, step] of steps.entries()) {
    const { prompt_token_ids: prompt, completion_token_ids: completion, continuation, parent_call_id } = turns[i] ?? { prompt_token_ids: [], completion_token_ids: [], continuation: null, parent_call_id: null };
    const text = (await detokenize(completion)).replace(/<\|im_end\|>$/, '');
    if (text !== step.text) faults.push(`turn ${i} was seen as ${JSON.stringify(step.text)} and recorded as ${JSON.stringify(text)}`);
    if (!step.continues) continue;
    const parent = byId.get(parent_call_id ?? '');
    const before = [...(parent?.prompt_token_ids ?? []), ...(parent?.completion_token_ids ?? [])];
    if (continuation !== 'clean' || before.length === 0 || !startsWith(prompt, before)) faults.push(`turn ${i} is ${continuation}`);
  }
  const trained = samples.reduce((sum, { loss_mask }) => sum + loss_mask.filter(Boolean).length, 0);
  const sampled = turns.reduce((sum, { completion_token_ids }) => sum + completion_token_ids.length, 0);
  if (trained !== sampled) faults.push(`${sampled} tokens were sampled, and ${trained} are trained`);
  return faults;
}
