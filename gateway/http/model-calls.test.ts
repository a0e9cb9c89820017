import { expect, test } from 'vitest';
import { ASK, eventually, readStream, useSharedGateway } from '../../tests/support/harness/gateways.ts';

const gateway = useSharedGateway();
const STREAM = { ...ASK, stream: true };

test('a plain reply is recorded with ids and log-probabilities that the agent does not get', async () => {
  const trial = await gateway.trial();
  const reply = await trial.chat(ASK);
  expect(reply.status).toBe(200);
  const body = await reply.json();
  expect(body.choices[0]).toEqual({
    index: 0,
    message: { role: 'assistant', content: 'Hello 🦀 world\u0000!', reasoning: null, not_yet_known: 1 },
    finish_reason: 'stop',
    stop_reason: null,
  });
  expect(body).toHaveProperty('kv_transfer_params', null);
  expect(body).not.toHaveProperty('prompt_token_ids');
  const [call, ...more] = await trial.calls();
  expect(more).toEqual([]);
  expect(call).toMatchObject({
    status: 'completed',
    finishReason: 'stop',
    untrainable: null,
    stream: false,
    weightVersion: 'default',
    policyVersion: null,
  });
  expect([...(call?.promptTokenIds ?? [])]).toEqual([1, 9690, 198]);
  expect([...(call?.completionTokenIds ?? [])]).toEqual([61, 8012, 17, 1073, 2]);
  expect([...(call?.logprobs ?? [])]).toEqual([-4.25, -2.5, -0.125, -1, -0.5]);
  expect(call?.request).toEqual(ASK);
});

test.each([false, true])(
  'a stream reaches the agent whole and is recorded like a plain reply (byte by byte: %s)',
  async (bytewise) => {
    gateway.engine.bytewise = bytewise;
    const trial = await gateway.trial();
    const stream = await readStream(await trial.chat(STREAM));
    expect(stream).toMatchObject({ broken: false, done: true });
    expect(stream.chunks.map((chunk) => chunk.choices?.[0]?.delta?.content ?? '').join('')).toBe(
      'Hello 🦀 world\u0000!',
    );
    expect(stream.text).not.toMatch(/token_ids|logprob|"usage"/);
    expect(stream.text).not.toContain('"choices":[]');
    expect(stream.text).toContain('not_yet_known');
    const [call] = await trial.calls();
    expect(call).toMatchObject({ status: 'completed', finishReason: 'stop', untrainable: null, stream: true });
    expect([...(call?.completionTokenIds ?? [])]).toEqual([61, 8012, 17, 1073, 2]);
    expect([...(call?.logprobs ?? [])]).toEqual([-4.25, -2.5, -0.125, -1, -0.5]);
    expect(call?.response).toMatchObject({ choices: [{ message: { content: 'Hello 🦀 world\u0000!' } }] });
  },
);

test('an agent gets the ids, log-probabilities and usage that it asks for', async () => {
  const trial = await gateway.trial();
  const own = { logprobs: true, top_logprobs: 3, return_token_ids: true };
  const body = await (await trial.chat({ ...ASK, ...own })).json();
  expect(body.prompt_token_ids).toEqual([1, 9690, 198]);
  expect(body.choices[0].token_ids).toHaveLength(5);
  expect(body.choices[0].logprobs.content).toHaveLength(5);
  expect(gateway.engine.last.body.top_logprobs).toBe(3);
  const stream = await readStream(await trial.chat({ ...STREAM, ...own, stream_options: { include_usage: true } }));
  expect(stream.chunks.at(-1)).toMatchObject({ choices: [], usage: { completion_tokens: 5 } });
  expect(stream.chunks[1]?.choices?.[0]).toHaveProperty('token_ids', [61]);
});

test('fields of a request that the gateway does not know reach the engine', async () => {
  const trial = await gateway.trial();
  const odd = { not_yet_known: { deep: [1, '\u0000'] }, tools: [{ type: 'function', function: { name: 'f' } }] };
  await trial.chat({ ...ASK, ...odd });
  expect(gateway.engine.last.body).toMatchObject({
    ...odd,
    model: 'policy',
    return_token_ids: true,
    logprobs: true,
    top_logprobs: 0,
  });
});

test('the gateway passes a stream on before its call is committed, except for the stream’s end', async () => {
  const trial = await gateway.trial();
  const released = Promise.withResolvers<void>();
  gateway.engine.beforeEnd = () => released.promise;
  const reader = (await trial.chat(STREAM)).body?.getReader();
  const decoder = new TextDecoder();
  let text = '';
  while (!text.includes('ld"')) text += decoder.decode((await reader?.read())?.value, { stream: true });
  expect(text).not.toContain('stop');
  expect(await trial.calls()).toEqual([]);
  released.resolve();
  for (let next = await reader?.read(); !next?.done; next = await reader?.read())
    text += decoder.decode(next?.value, { stream: true });
  expect(text).toContain('"finish_reason":"stop"');
});

test('a stream whose agent hangs up is aborted at the engine, and what was sampled is recorded', async () => {
  const trial = await gateway.trial();
  gateway.engine.delay = 60;
  const agent = new AbortController();
  const response = await trial.chat(STREAM, { signal: agent.signal });
  const reader = response.body?.getReader();
  const decoder = new TextDecoder();
  let text = '';
  while (!text.includes('Hel')) text += decoder.decode((await reader?.read())?.value, { stream: true });
  agent.abort();
  const [call] = await eventually(async () => ((await trial.calls()).length > 0 ? trial.calls() : null));
  expect(call).toMatchObject({ status: 'cancelled', httpStatus: 499, finishReason: null });
  expect(call?.completionTokenIds?.length).toBeGreaterThan(0);
  await eventually(() => gateway.engine.last.aborted);
});

test('a plain call whose agent hangs up is aborted at the engine and recorded as cancelled', async () => {
  const trial = await gateway.trial();
  gateway.engine.fault = 'hang';
  const agent = new AbortController();
  const left = expect(trial.chat(ASK, { signal: agent.signal })).rejects.toThrow();
  await eventually(() => gateway.engine.seen.length > 0);
  agent.abort();
  await left;
  const [call] = await eventually(async () => ((await trial.calls()).length > 0 ? trial.calls() : null));
  expect(call).toMatchObject({ status: 'cancelled', completionTokenIds: null });
  await eventually(() => gateway.engine.last.aborted);
});

test.each([
  ['not json', /not JSON/],
  ['[1]', /JSON object/],
  [new Uint8Array([123, 255, 125]), /not JSON/],
  [{}, /messages/],
  [{ messages: [] }, /messages/],
  [{ ...ASK, n: 0 }, /n/],
  [{ ...ASK, stream: 'yes' }, /stream/],
  [{ ...ASK, max_tokens: 0 }, /max_tokens/],
])('a call with a bad body gets 400 and does not reach the engine: %j', async (body, message) => {
  const trial = await gateway.trial();
  const reply = await trial.chat(body);
  expect(reply.status).toBe(400);
  expect(reply.headers.get('x-should-retry')).toBe('false');
  const { error } = await reply.json();
  expect(error).toMatchObject({ type: 'invalid_request_error', code: 'invalid_request', param: null });
  expect(error.message).toMatch(message);
  expect(gateway.engine.seen).toEqual([]);
});

/** Returns a body that comes in pieces and ends only when told to. */
function slowBody(): { body: ReadableStream<Uint8Array>; end: () => void } {
  const stream = new TransformStream<Uint8Array, Uint8Array>();
  const writer = stream.writable.getWriter();
  void writer.write(new TextEncoder().encode(JSON.stringify(ASK).slice(0, -1))).catch(() => {});
  return {
    body: stream.readable,
    end: () =>
      void writer
        .write(new TextEncoder().encode('}'))
        .then(() => writer.close())
        .catch(() => {}),
  };
}

const sendBody = (trial: { baseUrl: string; key: string }, body: BodyInit) =>
  fetch(`${trial.baseUrl}/chat/completions`, {
    method: 'POST',
    headers: { authorization: `Bearer ${trial.key}` },
    body,
    duplex: 'half',
  } as RequestInit);

test('a request body larger than the limit gets 413, whether it announces its length or not', async () => {
  await gateway.restart({ settings: { maxBodyBytes: 1000 } });
  const trial = await gateway.trial();
  const large = JSON.stringify({ ...ASK, padding: 'x'.repeat(2000) });
  for (const body of [large, new Blob([large]).stream()]) {
    const reply = await sendBody(trial, body);
    expect(reply.status).toBe(413);
    expect((await reply.json()).error.code).toBe('request_too_large');
  }
  expect((await sendBody(trial, new Blob([JSON.stringify(ASK)]).stream())).status).toBe(200);
});

test('calls whose bodies are still arriving count as calls in flight', async () => {
  await gateway.restart({ settings: { maxCallsInFlight: 2 } });
  const trial = await gateway.trial();
  const slow = [slowBody(), slowBody(), slowBody()];
  const held = slow.map(({ body }) => sendBody(trial, body));
  expect((await Promise.race(held)).status).toBe(429);
  for (const { end } of slow) end();
  expect((await Promise.all(held)).map(({ status }) => status).toSorted()).toEqual([200, 200, 429]);
  expect((await trial.chat(ASK)).status).toBe(200);
});

test('a call whose body has no length gets 409 before the body has arrived if the key’s attempt is closed', async () => {
  const first = await gateway.trial();
  await gateway.trial({ trialId: first.id, attempt: 2 });
  const { body, end } = slowBody();
  const reply = await sendBody(first, body);
  expect(reply.status).toBe(409);
  end();
});

test('the models route shows no file paths of the engine', async () => {
  const trial = await gateway.trial();
  const reply = await fetch(`${trial.baseUrl}/models`, { headers: { authorization: `Bearer ${trial.key}` } });
  expect(await reply.json()).toEqual({
    object: 'list',
    data: [
      {
        id: 'policy',
        object: 'model',
        type: 'model',
        display_name: 'policy',
        created: 7,
        created_at: '1970-01-01T00:00:07.000Z',
        owned_by: 'trialgate',
        max_model_len: 2048,
      },
    ],
    has_more: false,
    first_id: 'policy',
    last_id: 'policy',
  });
});

test('a strict gateway answers only calls for the model that it serves', async () => {
  await gateway.restart({ settings: { strictModel: true } });
  const trial = await gateway.trial();
  const reply = await trial.chat(ASK);
  expect(reply.status).toBe(404);
  expect((await reply.json()).error).toMatchObject({
    code: 'model_not_found',
    message: expect.stringContaining('policy'),
  });
  expect((await trial.chat({ ...ASK, model: 'policy' })).status).toBe(200);
});
