import { expect, test } from 'vitest';
import { SglangEngine } from '../../tests/support/fakes/sglang/sglang-engine.ts';
import { vllmMetrics } from '../../tests/support/scenarios/vllm-metrics.ts';
import { jsonReply, type EngineConnection } from './connection.ts';
import { openai } from './openai/openai.ts';
import { sglang } from './sglang/sglang.ts';
import { vllm } from './vllm/vllm.ts';
import { UndiciConnection } from '../runtimes/node/engine-connection.ts';

function answering(text: string, status = 200): EngineConnection {
  const ask = () => Promise.resolve({ ...jsonReply(status, null), body: new Blob([text]).stream() });
  return { url: 'http://engine', epoch: 0, onChange: null, ask, send: ask, close: () => Promise.resolve() };
}
const signal = new AbortController().signal;

test('the load of vLLM is read from its metrics', async () => {
  const page = vllmMetrics({ running: 3, waiting: 2, kvUse: 0.25, blocks: 100, queries: 2e6, hits: 15e5 });
  expect(await vllm.load(answering(page), signal)).toEqual({
    running: 3,
    waiting: 2,
    kvUse: 0.25,
    kvTokens: 1_600,
    prefix: { queries: 2e6, hits: 15e5 },
  });
});

test('the engines of a vLLM with data parallelism are added up', async () => {
  const one = vllmMetrics({ running: 3, kvUse: 0.5 });
  const two = vllmMetrics({ running: 1, kvUse: 0.1 }).replaceAll('engine="0"', 'engine="1"');
  expect(await vllm.load(answering(one + two), signal)).toMatchObject({ running: 4, kvUse: 0.3, kvTokens: 3_200 });
});

test('where vLLM names its size in tokens, that counts', async () => {
  const page = vllmMetrics().replace('kv_cache_size_tokens="None"', 'kv_cache_size_tokens="1500"');
  expect(await vllm.load(answering(page), signal)).toMatchObject({ kvTokens: 1_500 });
});

test.each([
  ['no such page', 'Not Found', 404],
  ['another page', '<html>vllm:num_requests_running</html>', 200],
  ['metrics of another server', 'up 1\n', 200],
])('%s is no load', async (_, text, status) => {
  expect(await vllm.load(answering(text, status), signal)).toBeNull();
  expect(await sglang.load(answering(text, status), signal)).toBeNull();
  expect(await openai.load(answering(text, status), signal)).toBeNull();
});

test('the load of SGLang is read from its schedulers', async () => {
  const engine = await new SglangEngine().start();
  const connection = new UndiciConnection(engine.url);
  try {
    expect(await sglang.load(connection, signal)).toEqual({
      running: 0,
      waiting: 0,
      kvUse: 0,
      kvTokens: engine.context,
      prefix: null,
    });
  } finally {
    await connection.close();
    await engine.stop();
  }
});
