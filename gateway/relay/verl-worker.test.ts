import { afterEach, describe, expect, test } from 'vitest';
import { replicas } from '../../store/schema.ts';
import { ADMIN_KEY, ASK, readStream } from '../../tests/support/harness/gateways.ts';
import { VerlWorker } from '../../tests/support/harness/relay.ts';
import { useTokenGateway } from '../../tests/support/harness/token-gateway.ts';

const TOOLS = [{ type: 'function', function: { name: 'add', parameters: { type: 'object' } } }];
const CALL = { id: 'call_1', type: 'function', function: { name: 'add', arguments: '{"a": 1}' } };
const SAID = { token_ids: [5, 6, 7], completion_text: 'said', content_text: 'said', finish_reason: 'stop' };
const CALLED = { ...SAID, completion_text: 'raw <tool_call>', content_text: '', tool_calls: [CALL] };

describe("a worker with verl's frames", () => {
  const gateway = useTokenGateway({ engines: ['relay'], settings: { holdMs: 500 } });
  const workers: VerlWorker[] = [];
  const rows = () => gateway.replicaUrls();
  const dial = async (answer: Parameters<typeof VerlWorker.dial>[2]) => {
    const worker = await VerlWorker.dial(gateway.gateway.url, { id: 'v1', key: ADMIN_KEY }, answer);
    workers.push(worker);
    await expect.poll(rows).toEqual(['openai+relay:v1']);
    return worker;
  };
  afterEach(async () => {
    await Promise.all(workers.splice(0).map((worker) => worker.close()));
    await gateway.db.delete(replicas);
  });

  test('is greeted as the frames say, and its ping is answered', async () => {
    const worker = await dial(() => SAID);
    worker.send({ type: 'ping' });
    await expect.poll(() => worker.received).toHaveLength(2);
    const [greeting, pong] = worker.received;
    expect(greeting).toMatchObject({ type: 'worker_hello_ack', worker_id: 'v1', status: 'connected' });
    expect(pong).toEqual({ type: 'pong' });
  });

  test('gets a chat with its tools in the fields of a completion_request, and the gateway’s defaults where the agent left one out', async () => {
    const worker = await dial(() => SAID);
    const trial = await gateway.trial();
    const reply = await trial.chat({ ...ASK, tools: TOOLS, temperature: 0.5, stop: ['x'], max_tokens: 9, top_k: 3 });
    expect(await reply.json()).toMatchObject({
      choices: [{ message: { role: 'assistant', content: 'said' }, finish_reason: 'stop' }],
      usage: { completion_tokens: 3 },
    });
    const [request] = worker.requests;
    expect(request).toMatchObject({
      type: 'completion_request',
      messages: ASK.messages,
      tools: TOOLS,
      temperature: 0.5,
      top_p: 1,
      max_tokens: 9,
      stop: ['x'],
      stream: false,
    });
    expect(request).not.toHaveProperty('top_k');
    expect(await trial.calls()).toMatchObject([
      { status: 'completed', engine: 'openai+relay:v1', untrainable: expect.any(String) },
    ]);
  });

  test('that answers with tool calls and `stop` gives the agent these calls and `tool_calls`, whole and as a stream', async () => {
    await dial(() => CALLED);
    const trial = await gateway.trial();
    const asked = { ...ASK, tools: TOOLS };
    expect(await (await trial.chat(asked)).json()).toMatchObject({
      choices: [{ message: { content: null, tool_calls: [CALL] }, finish_reason: 'tool_calls' }],
    });
    const { chunks, done } = await readStream(await trial.chat({ ...asked, stream: true }));
    expect(done).toBe(true);
    const choices = chunks.flatMap((chunk) => chunk.choices ?? []);
    expect(choices.flatMap(({ delta }) => (delta && 'tool_calls' in delta ? delta.tool_calls : []))).toMatchObject([
      { index: 0, ...CALL },
    ]);
    expect(choices.map(({ finish_reason: finish }) => finish).filter(Boolean)).toEqual(['tool_calls']);
  });

  test('gets the tool’s result in the next turn’s messages', async () => {
    const worker = await dial(({ messages }) => (Array.isArray(messages) && messages.length === 1 ? CALLED : SAID));
    const trial = await gateway.trial();
    const { choices } = await (await trial.chat({ ...ASK, tools: TOOLS })).json();
    const result = { role: 'tool', tool_call_id: CALL.id, content: '2' };
    const messages = [...ASK.messages, choices[0].message, result];
    expect((await trial.chat({ ...ASK, tools: TOOLS, messages })).status).toBe(200);
    expect(worker.requests[1]).toMatchObject({ messages: [{}, { tool_calls: [CALL] }, result] });
  });

  test('answers calls side by side in any order', async () => {
    const held: string[] = [];
    const worker = await dial(({ request_id: id }) => {
      held.push(id);
      return null;
    });
    const trial = await gateway.trial();
    const replies = Array.from({ length: 8 }, async (_, i) =>
      (await trial.chat({ ...ASK, messages: [{ role: 'user', content: `number ${i}.` }] })).text(),
    );
    await expect.poll(() => held).toHaveLength(8);
    for (const { request_id, messages } of worker.requests.toReversed())
      worker.send({ type: 'completion_response', request_id, ...SAID, content_text: JSON.stringify(messages) });
    for (const [i, text] of (await Promise.all(replies)).entries()) expect(text).toContain(`number ${i}.`);
  });

  test('that reports an error fails the call', async () => {
    await dial(() => ({ error: 'out of memory' }));
    const trial = await gateway.trial();
    expect((await trial.chat(ASK)).status).toBeGreaterThanOrEqual(500);
    expect(await trial.calls()).toMatchObject([{ status: 'failed' }]);
  });

  test.each([{ tool_choice: 'required' }, { response_format: { type: 'json_object' } }])(
    'is not asked for a form that its frames cannot force: %o',
    async (forced) => {
      const worker = await dial(() => SAID);
      const reply = await (await gateway.trial()).chat({ ...ASK, tools: TOOLS, ...forced });
      expect([reply.status, await reply.text()]).toEqual([400, expect.stringContaining('leave out')]);
      expect(worker.requests).toEqual([]);
    },
  );

  test('whose connection is cut fails its calls, and leaves the pool', async () => {
    const worker = await dial(() => null);
    const trial = await gateway.trial();
    const reply = trial.chat(ASK);
    await expect.poll(() => worker.requests).toHaveLength(1);
    worker.cut();
    expect((await reply).status).toBeGreaterThanOrEqual(500);
    await expect.poll(rows).toEqual([]);
  });

  test('that greets a second time is disconnected', async () => {
    const worker = await dial(() => SAID);
    worker.send({ type: 'worker_hello', worker_id: 'v1' });
    await expect.poll(rows).toEqual([]);
  });
});
