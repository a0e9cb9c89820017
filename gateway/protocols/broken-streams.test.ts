import { expect, test } from 'vitest';
import { isObject } from '../json.ts';
import { eventually, useSharedGateway } from '../../tests/support/harness/gateways.ts';
import { readEvents, typesOf } from '../../tests/support/oracles/protocol-events.ts';

const gateway = useSharedGateway();
const KINDS = [
  {
    path: 'messages',
    body: { max_tokens: 100, messages: [{ role: 'user', content: 'x' }], stream: true },
    ends: ['message_delta', 'message_stop'],
    error: ['error'],
  },
  {
    path: 'responses',
    body: { input: 'x', stream: true },
    ends: ['response.completed'],
    error: ['response.failed', 'error'],
  },
];

test.each(KINDS)(
  '$path: a stream that the engine breaks off ends with the protocol’s error and a closed connection',
  async ({ path, body, ends, error }) => {
    const trial = await gateway.trial();
    gateway.engine.fault = 'cut';
    const { events, broken } = await readEvents(await gateway.post(`/${trial.id}/v1/${path}`, trial.key, body));
    const types = typesOf(events);
    expect(broken).toBe(true);
    expect(types.slice(-error.length)).toEqual(error);
    expect(types.filter((type) => ends.includes(type))).toEqual([]);
    expect((await trial.calls()).map(({ status }) => status)).toEqual(['failed']);
  },
);

test.each(KINDS)(
  '$path: the gateway sends the end of a stream only after its call is committed',
  async ({ path, body, ends }) => {
    const trial = await gateway.trial();
    const released = Promise.withResolvers<void>();
    gateway.engine.beforeEnd = () => released.promise;
    const reader = (await gateway.post(`/${trial.id}/v1/${path}`, trial.key, body)).body?.getReader();
    const decoder = new TextDecoder();
    let text = '';
    while (!text.includes('ld"')) text += decoder.decode((await reader?.read())?.value, { stream: true });
    expect(text).not.toMatch(/content_block_stop|output_item\.done/);
    expect(await trial.calls()).toEqual([]);
    released.resolve();
    for (let next = await reader?.read(); !next?.done; next = await reader?.read())
      text += decoder.decode(next?.value, { stream: true });
    for (const end of ends) expect(text).toContain(`event: ${end}\n`);
    await eventually(async () => (await trial.calls()).length === 1);
  },
);

test.each(KINDS)(
  '$path: a character that the engine sends byte by byte reaches the agent whole',
  async ({ path, body }) => {
    gateway.engine.bytewise = true;
    const trial = await gateway.trial();
    const { events } = await readEvents(await gateway.post(`/${trial.id}/v1/${path}`, trial.key, body));
    const said = events
      .map(({ delta }) => (isObject(delta) ? delta.text : delta))
      .filter((text) => typeof text === 'string');
    expect(said.join('')).toBe('Hello 🦀 world\u0000!');
  },
);
