import { expect, test } from 'vitest';
import type { EngineConnection, EngineRequest } from './connection.ts';
import { Replica } from './replica.ts';

test('an engine that starts again with another model is asked again what it can do, though its weight version is that of every new engine', async () => {
  let root = 'first';
  const asked: string[] = [];
  async function* body(value: unknown) {
    yield new TextEncoder().encode(JSON.stringify(value));
  }
  const ask = async ({ path }: EngineRequest) => {
    asked.push(path);
    const value =
      path === '/v1/models'
        ? { data: [{ id: 'policy', root }] }
        : path === '/v1/completions'
          ? { choices: [{ logprobs: { token_logprobs: [0] } }] }
          : { weight_version: 'default' };
    return { status: 200, contentType: 'application/json', body: body(value) };
  };
  const connection: EngineConnection = {
    url: 'http://engine',
    epoch: 0,
    onChange: null,
    ask,
    send: ask,
    close: () => Promise.resolve(),
  };
  const replica = new Replica(connection);
  const timesAsked = async () => {
    await replica.models();
    expect(await replica.logprobsMode('policy')).toBe('processed_logprobs');
    return asked.filter((path) => path === '/v1/completions').length;
  };
  const reconnect = () => connection.onChange?.();
  expect(await timesAsked()).toBe(1);
  reconnect();
  expect(await timesAsked()).toBe(1);
  root = 'second';
  reconnect();
  expect(await timesAsked()).toBe(2);
});
