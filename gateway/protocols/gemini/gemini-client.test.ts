import {
  FunctionCallingConfigMode,
  GoogleGenAI,
  Type,
  type Content,
  type GenerateContentResponse,
} from '@google/genai';
import { expect, test } from 'vitest';
import { calling } from '../../../tests/support/harness/calling.ts';
import { useSharedGateway } from '../../../tests/support/harness/gateways.ts';
import { useSharedToyGateway } from '../../../tests/support/harness/token-gateway.ts';

const gateway = useSharedToyGateway();
const fake = useSharedGateway();
type Trial = Awaited<ReturnType<typeof gateway.trial>>;

const clientOf = ({ id, key }: Pick<Trial, 'id' | 'key'>, url = gateway.gateway.url): GoogleGenAI =>
  new GoogleGenAI({
    apiKey: key,
    httpOptions: { baseUrl: `${url}/${id}`, retryOptions: { attempts: 1 } },
  });

const TOOLS = [
  {
    functionDeclarations: [
      {
        name: 'ls',
        description: 'lists',
        parameters: { type: Type.OBJECT, properties: { path: { type: Type.STRING, nullable: true } } },
      },
    ],
  },
];
const LS = calling({ name: 'ls', arguments: { path: '🦀', n: 1.5 } }, { name: 'ls', arguments: {} });

/** Returns all of a reply, as its client assembles it from a stream. */
async function assembled(stream: AsyncGenerator<GenerateContentResponse>) {
  const contents: Content[] = [];
  let last: GenerateContentResponse | undefined;
  for await (const chunk of stream) {
    last = chunk;
    contents.push(...(chunk.candidates ?? []).flatMap(({ content }) => content ?? []));
  }
  return { contents, last };
}

test.each([false, true])(
  'Google’s client reads every part of a turn from the gateway, and later turns continue the recorded ids (stream: %s)',
  async (stream) => {
    const trial = await gateway.trial();
    const { models } = clientOf(trial);
    gateway.toy.script = [{ text: `<think>hm</think>I look.${LS}` }, { text: LS }, { text: 'done 🦀' }];
    const contents: Content[] = [{ role: 'user', parts: [{ text: 'look' }] }];
    const ends = [];
    for (let turn = 0; turn < 3; turn++) {
      const asked = {
        model: 'policy',
        contents,
        config: {
          maxOutputTokens: 100,
          systemInstruction: 'be short',
          tools: TOOLS,
          thinkingConfig: { includeThoughts: true },
        },
      };
      const reply = stream
        ? await assembled(await models.generateContentStream(asked))
        : await models
            .generateContent(asked)
            .then((last) => ({ contents: [last.candidates?.[0]?.content ?? {}], last }));
      expect(reply.last?.usageMetadata?.promptTokenCount).toBeGreaterThan(0);
      expect(reply.last?.usageMetadata?.candidatesTokenCount).toBeGreaterThan(0);
      const parts = reply.contents.flatMap((content) => content.parts ?? []);
      const calls = parts.flatMap(({ functionCall }) => functionCall ?? []);
      const textOf = (isThought: boolean) =>
        parts.map(({ text, thought }) => ((thought ?? false) === isThought ? (text ?? '') : '')).join('');
      ends.push([
        reply.last?.candidates?.[0]?.finishReason,
        textOf(true),
        textOf(false),
        calls.map(({ args }) => args),
      ]);
      contents.push(...reply.contents, {
        role: 'user',
        // Most agents name no ids.
        parts: calls.map(({ name }) => ({ functionResponse: { name, response: { output: 'a.txt' } } })),
      });
    }
    const args = [{ path: '🦀', n: 1.5 }, {}];
    expect(ends).toEqual([
      ['STOP', 'hm', 'I look.', args],
      ['STOP', '', '', args],
      ['STOP', '', 'done 🦀', []],
    ]);
    expect(await trial.calls()).toMatchObject(
      [null, 'clean', 'clean'].map((continuation) => ({
        protocol: 'gemini',
        stream,
        status: 'completed',
        untrainable: null,
        continuation,
      })),
    );
  },
);

test('the model is asked for what Google’s client asks of Gemini', async () => {
  const trial = await gateway.trial();
  await clientOf(trial).models.generateContent({
    model: 'models/an/owner',
    contents: [{ role: 'user', parts: [{ text: 'draw' }, { inlineData: { mimeType: 'image/png', data: 'eA==' } }] }],
    config: {
      temperature: 0.5,
      topP: 0.9,
      topK: 5,
      maxOutputTokens: 7,
      stopSequences: ['END'],
      candidateCount: 2,
      seed: 3,
      responseMimeType: 'application/json',
      responseSchema: { type: Type.OBJECT, properties: { n: { type: Type.INTEGER } }, required: ['n'] },
      tools: TOOLS,
      toolConfig: { functionCallingConfig: { mode: FunctionCallingConfigMode.ANY, allowedFunctionNames: ['ls'] } },
    },
  });
  const [first, second] = await trial.calls();
  expect(second?.choiceOf).toBe(first?.id);
  expect(first?.request).toMatchObject({
    model: 'an/owner',
    messages: [
      {
        role: 'user',
        content: [
          { type: 'text', text: 'draw' },
          { type: 'image_url', image_url: { url: 'data:image/png;base64,eA==' } },
        ],
      },
    ],
    temperature: 0.5,
    top_p: 0.9,
    top_k: 5,
    max_tokens: 7,
    stop: ['END'],
    n: 2,
    seed: 3,
    response_format: {
      type: 'json_schema',
      json_schema: {
        name: 'response',
        schema: { type: 'object', properties: { n: { type: 'integer' } }, required: ['n'] },
      },
    },
    tools: [
      {
        type: 'function',
        function: {
          name: 'ls',
          parameters: { type: 'object', properties: { path: { type: ['string', 'null'] } } },
        },
      },
    ],
    tool_choice: { type: 'function', function: { name: 'ls' } },
  });
});

test('a chat of Google’s client goes on from its streamed replies', async () => {
  const trial = await gateway.trial();
  gateway.toy.script = [{ text: 'one two three' }, { text: 'four' }];
  const chat = clientOf(trial).chats.create({ model: 'policy' });
  let text = '';
  for await (const chunk of await chat.sendMessageStream({ message: 'count' })) text += chunk.text ?? '';
  expect(text).toBe('one two three');
  expect((await chat.sendMessage({ message: 'on' })).text).toBe('four');
  expect((await trial.calls()).map(({ continuation }) => continuation)).toEqual([null, 'clean']);
});

test('Google’s client counts tokens by the engine, and nothing is recorded', async () => {
  const trial = await gateway.trial();
  const { totalTokens } = await clientOf(trial).models.countTokens({ model: 'policy', contents: 'look' });
  expect(totalTokens).toBeGreaterThan(0);
  expect(await trial.calls()).toEqual([]);
});

test('Google’s client raises the gateway’s errors with their status', async () => {
  const trial = await gateway.trial();
  const ask = { model: 'policy', contents: 'look' };
  await expect(clientOf({ id: trial.id, key: 'wrong' }).models.generateContent(ask)).rejects.toMatchObject({
    status: 401,
    message: expect.stringContaining('UNAUTHENTICATED'),
  });
  gateway.toy.fault = (path) => (path.endsWith('/chat/completions') ? 503 : null);
  await expect(clientOf(trial).models.generateContentStream(ask)).rejects.toMatchObject({ status: 502 });
  expect((await trial.calls()).map(({ status }) => status)).toEqual(['failed']);
});

test('Google’s client raises an error when a stream breaks off', async () => {
  fake.engine.fault = 'cut';
  const { api_key, session_id } = await (await fake.admin('POST', '/sessions/cut')).json();
  const { models } = clientOf({ id: session_id, key: api_key }, fake.gateway.url);
  const stream = await models.generateContentStream({ model: 'policy', contents: 'look' });
  await expect(assembled(stream)).rejects.toThrow();
});

test.each([
  [{ contents: [] }, 'contents: at least one content is needed'],
  [{ contents: [{ parts: [{ text: 7 }] }] }, 'contents.0.parts.0.text'],
  [
    { contents: [{ parts: [] }], generation_config: { response_mime_type: 'text/x.enum' } },
    'other forms are not served',
  ],
  [{ contents: [{ parts: [] }], cachedContent: 'cachedContents/1' }, 'send the contents'],
])('a request that cannot be Gemini’s gets 400 in Gemini’s form: %j', async (body, message) => {
  const trial = await gateway.trial();
  const reply = await gateway.post('/v1beta/models/policy:generateContent', trial.key, body);
  expect(reply.status).toBe(400);
  expect(await reply.json()).toEqual({
    error: { code: 400, status: 'INVALID_ARGUMENT', message: expect.stringContaining(message) },
  });
});

test('a stream that is not asked for as events gets 400, and a method that is not served 404, in Gemini’s form', async () => {
  const trial = await gateway.trial();
  const body = { contents: [{ parts: [{ text: 'x' }] }] };
  const streamed = await gateway.post('/v1beta/models/policy:streamGenerateContent', trial.key, body);
  expect(await streamed.json()).toMatchObject({ error: { code: 400, message: expect.stringContaining('?alt=sse') } });
  const unserved = await gateway.post('/v1beta/models/policy:embedContent', trial.key, body);
  expect(await unserved.json()).toMatchObject({ error: { code: 404, status: 'NOT_FOUND' } });
});

test('parts and tools that the model cannot be shown are recorded and named in the log', async () => {
  const trial = await gateway.trial();
  const reply = await gateway.post('/v1beta/models/policy:generateContent', trial.key, {
    contents: [{ parts: [{ text: 'look' }, { file_data: { file_uri: 'files/1' } }] }],
    tools: [{ google_search: {} }],
  });
  expect(reply.status).toBe(200);
  expect((await trial.calls())[0]?.request).toMatchObject({
    messages: [{ role: 'user', content: 'look' }],
    left_out: [{ at: 'contents.0.parts.1' }, { at: 'tools.0.googleSearch' }],
  });
});

test('media in and beside results of functions are a part of them, so that no empty turn stands between results', async () => {
  const trial = await gateway.trial();
  const blob = { mimeType: 'image/png', data: 'eA==' };
  const image = { type: 'image_url', image_url: { url: 'data:image/png;base64,eA==' } };
  await clientOf(trial).models.generateContent({
    model: 'policy',
    contents: [
      { role: 'user', parts: [{ text: 'look' }] },
      { role: 'model', parts: ['a', 'b'].map((name) => ({ functionCall: { name, args: {} } })) },
      {
        role: 'user',
        parts: [
          { functionResponse: { name: 'a', response: { output: 'first' }, parts: [{ inlineData: blob }] } },
          { functionResponse: { name: 'b', response: { output: 'second' } } },
          { inlineData: blob },
        ],
      },
    ],
  });
  const [call] = await trial.calls();
  expect(call?.request.messages).toMatchObject([
    { role: 'user' },
    { role: 'assistant' },
    { role: 'tool', content: [{ type: 'text', text: 'first' }, image] },
    { role: 'tool', content: [{ type: 'text', text: 'second' }, image] },
  ]);
});
