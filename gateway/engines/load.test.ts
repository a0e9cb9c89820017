import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { SglangEngine } from '../../tests/support/fakes/sglang/sglang-engine.ts';
import { encode } from '../../tests/support/fakes/toy-tokenizer.ts';
import { vllmMetrics } from '../../tests/support/scenarios/vllm-metrics.ts';
import { jsonReply, type EngineConnection } from './connection.ts';
import { openai } from './openai/openai.ts';
import { sglang } from './sglang/sglang.ts';
import { vllm } from './vllm/vllm.ts';
import { UndiciConnection } from '../runtimes/node/engine-connection.ts';

/** An engine with this page, at all paths or by path. */
function answering(page: string | ((path: string) => string), status = 200): EngineConnection {
  const ask = ({ path }: { path: string }) => {
    const text = typeof page === 'string' ? page : page(path);
    return Promise.resolve({ ...jsonReply(status, null), body: new Blob([text]).stream() });
  };
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

describe('SGLang', () => {
  let engine: SglangEngine;
  let connection: UndiciConnection;
  beforeEach(async () => {
    engine = await new SglangEngine().start();
    connection = new UndiciConnection(engine.url);
  });
  afterEach(async () => {
    await connection.close();
    await engine.stop();
  });

  test('its load is read from its schedulers; it tells no hits without metrics', async () => {
    expect(await sglang.load(connection, signal)).toEqual({
      running: 0,
      waiting: 0,
      kvUse: 0,
      kvTokens: engine.context,
      prefix: null,
    });
  });

  test('with metrics it tells the hits in its prefix cache once a request has ended', async () => {
    engine.hasMetrics = true;
    const prefix = async () => (await sglang.load(connection, signal))?.prefix;
    expect(await prefix()).toBeNull();
    const ids = encode('hello');
    const body = JSON.stringify({ input_ids: ids, sampling_params: { max_new_tokens: 2 } });
    const generate = () => fetch(`${engine.url}/generate`, { method: 'POST', body });
    await (await generate()).text();
    expect(await prefix()).toEqual({ queries: ids.length, hits: 0 });
    await (await generate()).text();
    expect(await prefix()).toEqual({ queries: 2 * ids.length, hits: ids.length - 1 });
  });

  test('hits from all places and all kinds of requests are added up', async () => {
    const loads = await (await fetch(`${engine.url}/v1/loads`)).text();
    const page = [
      'sglang:prompt_tokens_total{is_streaming="false",model_name="m"} 100.0',
      'sglang:prompt_tokens_total{is_streaming="true",model_name="m"} 50.0',
      'sglang:cached_tokens_total{cache_source="device",model_name="m"} 60.0',
      'sglang:cached_tokens_total{cache_source="host",model_name="m"} 7.0',
      'sglang:cached_tokens_total{cache_source="storage",model_name="m"} 3.0',
    ].join('\n');
    const told = answering((path) => (path === '/metrics' ? page : loads));
    expect(await sglang.load(told, signal)).toMatchObject({
      prefix: { queries: 150, hits: 70 },
    });
  });
});
