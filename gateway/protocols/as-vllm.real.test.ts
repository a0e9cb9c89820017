import { beforeAll, expect, test } from 'vitest';
import { startGateway } from '../runtimes/node/start-gateway.ts';
import type { JsonObject } from '../json.ts';
import { normalizeResponse, type NormalizedResponse } from '../../tests/support/oracles/normalized-response.ts';
import { withVllm } from '../../tests/support/harness/own-vllm.ts';
import { trialOverHttp } from '../../tests/support/harness/trial-over-http.ts';
import { openDatabase } from '../../store/database.ts';
import { readCalls } from '../../store/queries/read-calls.ts';
import { TestPostgres } from '../../tests/support/harness/postgres.ts';

type Case = { path: string; body: JsonObject };

// A forced call must end within its length: vLLM refuses a whole message whose call was cut, and what it makes of a cut call in a stream
// depends on how the tokens came together in chunks, which differs from time to time.
const PARAMETERS = { type: 'object', properties: {}, additionalProperties: false };
const CHAT = {
  messages: [
    { role: 'system', content: 'You are brief.' },
    { role: 'user', content: 'What is a file?' },
  ],
  max_tokens: 12,
};
const CHAT_TOOLS = { tools: [{ type: 'function', function: { name: 'ls', parameters: PARAMETERS } }], max_tokens: 24 };
const CALLED = { id: 'call_1', type: 'function', function: { name: 'ls', arguments: '{"path": "a"}' } };
const MESSAGES = { system: 'You are brief.', messages: [{ role: 'user', content: 'What is a file?' }], max_tokens: 12 };
const MESSAGES_TOOLS = { tools: [{ name: 'ls', input_schema: PARAMETERS }], max_tokens: 24 };
const RESPONSES = { instructions: 'You are brief.', input: 'What is a file?', max_output_tokens: 12 };
const RESPONSES_TOOLS = { tools: [{ type: 'function', name: 'ls', parameters: PARAMETERS }], max_output_tokens: 24 };

const ASKED: Record<string, Case> = {
  'a chat': { path: 'chat/completions', body: CHAT },
  'a chat with several replies and parts': {
    path: 'chat/completions',
    body: {
      ...CHAT,
      messages: [
        {
          role: 'user',
          content: [
            { type: 'text', text: 'A' },
            { type: 'text', text: 'file?' },
          ],
        },
      ],
      n: 2,
      max_tokens: 6,
      temperature: 1,
      seed: 7,
      stop: ['.'],
    },
  },
  'a chat in a format': {
    path: 'chat/completions',
    body: {
      ...CHAT,
      max_tokens: 20,
      response_format: {
        type: 'json_schema',
        json_schema: { name: 'n', schema: { type: 'object', properties: { a: { type: 'boolean' } }, required: ['a'] } },
      },
    },
  },
  'a chat with a tool left to it': { path: 'chat/completions', body: { ...CHAT, ...CHAT_TOOLS, max_tokens: 12 } },
  'a chat with a tool forced': { path: 'chat/completions', body: { ...CHAT, ...CHAT_TOOLS, tool_choice: 'required' } },
  'a chat after a tool': {
    path: 'chat/completions',
    body: {
      ...CHAT,
      ...CHAT_TOOLS,
      messages: [
        ...CHAT.messages,
        { role: 'assistant', content: null, tool_calls: [CALLED] },
        { role: 'tool', tool_call_id: 'call_1', content: 'a.txt' },
      ],
      max_tokens: 12,
    },
  },
  'a completion': { path: 'completions', body: { prompt: 'A file is', max_tokens: 12 } },
  messages: { path: 'messages', body: MESSAGES },
  'messages to a stop string': { path: 'messages', body: { ...MESSAGES, max_tokens: 30, stop_sequences: ['.'] } },
  'messages with a tool left to it': { path: 'messages', body: { ...MESSAGES, ...MESSAGES_TOOLS, max_tokens: 12 } },
  'messages with a tool forced': {
    path: 'messages',
    body: { ...MESSAGES, ...MESSAGES_TOOLS, tool_choice: { type: 'tool', name: 'ls' } },
  },
  'messages with any tool': {
    path: 'messages',
    body: { ...MESSAGES, ...MESSAGES_TOOLS, tool_choice: { type: 'any', disable_parallel_tool_use: true } },
  },
  'messages after a tool': {
    path: 'messages',
    body: {
      ...MESSAGES,
      tools: MESSAGES_TOOLS.tools,
      messages: [
        ...MESSAGES.messages,
        {
          role: 'assistant',
          content: [
            { type: 'text', text: 'I look' },
            { type: 'tool_use', id: 'call_1', name: 'ls', input: { path: 'a' } },
          ],
        },
        {
          role: 'user',
          content: [
            { type: 'tool_result', tool_use_id: 'call_1', content: [{ type: 'text', text: 'a.txt' }] },
            { type: 'text', text: 'and?' },
          ],
        },
      ],
    },
  },
  'a response': { path: 'responses', body: RESPONSES },
  'a response in a format': {
    path: 'responses',
    body: {
      ...RESPONSES,
      max_output_tokens: 20,
      text: {
        format: {
          type: 'json_schema',
          name: 'n',
          schema: { type: 'object', properties: { a: { type: 'boolean' } }, required: ['a'] },
        },
      },
    },
  },
  'a response with a tool left to it': {
    path: 'responses',
    body: { ...RESPONSES, ...RESPONSES_TOOLS, max_output_tokens: 12 },
  },
  'a response with a tool forced': {
    path: 'responses',
    body: { ...RESPONSES, ...RESPONSES_TOOLS, tool_choice: { type: 'function', name: 'ls' } },
  },
  'a response with any tool': {
    path: 'responses',
    body: { ...RESPONSES, ...RESPONSES_TOOLS, tool_choice: 'required' },
  },
  'a response after a tool': {
    path: 'responses',
    body: {
      ...RESPONSES,
      tools: RESPONSES_TOOLS.tools,
      input: [
        { role: 'user', content: 'Look' },
        { type: 'message', role: 'assistant', content: [{ type: 'output_text', text: 'I look' }] },
        { type: 'function_call', call_id: 'call_1', name: 'ls', arguments: '{"path": "a"}' },
        { type: 'function_call_output', call_id: 'call_1', output: 'a.txt' },
      ],
    },
  },
};
const PIXEL = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==';
const PNG = { type: 'image', source: { type: 'base64', media_type: 'image/png', data: PIXEL } };
const PDF = { type: 'document', source: { type: 'base64', media_type: 'application/pdf', data: 'JVBERi0xLjQK' } };
const READ = [
  ...MESSAGES.messages,
  { role: 'assistant', content: [{ type: 'tool_use', id: 'call_1', name: 'ls', input: {} }] },
];
/**
 * Requests with blocks, items and tools that a text model cannot be shown. vLLM itself refuses some of them. `keeps` is a part that the
 * record must have.
 */
const BEYOND_TEXT: Record<string, Case & { keeps: string }> = {
  'a chat with an image and a file': {
    keeps: 'image/png',
    path: 'chat/completions',
    body: {
      ...CHAT,
      messages: [
        {
          role: 'user',
          content: [
            { type: 'text', text: 'Look' },
            { type: 'image_url', image_url: { url: `data:image/png;base64,${PIXEL}` } },
            { type: 'file', file: { filename: 'a.pdf', file_data: 'data:application/pdf;base64,JVBERi0xLjQK' } },
          ],
        },
      ],
    },
  },
  'messages with a PDF and an image in a tool result': {
    keeps: 'application/pdf',
    path: 'messages',
    body: {
      ...MESSAGES,
      tools: MESSAGES_TOOLS.tools,
      messages: [
        ...READ,
        {
          role: 'user',
          content: [
            { type: 'tool_result', tool_use_id: 'call_1', content: [{ type: 'text', text: 'read' }, PDF, PNG] },
          ],
        },
      ],
    },
  },
  'messages with a tool reference': {
    keeps: 'tool_reference',
    path: 'messages',
    body: {
      ...MESSAGES,
      tools: MESSAGES_TOOLS.tools,
      messages: [
        ...READ,
        {
          role: 'user',
          content: [
            { type: 'tool_result', tool_use_id: 'call_1', content: [{ type: 'tool_reference', tool_name: 'ls' }] },
          ],
        },
      ],
    },
  },
  'messages with a tool of the provider': {
    keeps: 'web_search_20250305',
    path: 'messages',
    body: { ...MESSAGES, tools: [...MESSAGES_TOOLS.tools, { type: 'web_search_20250305', name: 'web_search' }] },
  },
  'a response with items and a tool of the provider': {
    keeps: 'web_search_call',
    path: 'responses',
    body: {
      ...RESPONSES,
      tools: [...RESPONSES_TOOLS.tools, { type: 'web_search' }],
      input: [
        { role: 'user', content: 'Look' },
        { type: 'web_search_call', id: 'ws_1', status: 'completed', action: { type: 'search', query: 'files' } },
        { type: 'compaction', id: 'cmp_1', encrypted_content: 'x' },
      ],
    },
  },
  'a response with an image and a file': {
    keeps: 'a.pdf',
    path: 'responses',
    body: {
      ...RESPONSES,
      input: [
        {
          role: 'user',
          content: [
            { type: 'input_text', text: 'Look' },
            { type: 'input_image', image_url: `data:image/png;base64,${PIXEL}` },
            { type: 'input_file', filename: 'a.pdf', file_data: 'data:application/pdf;base64,JVBERi0xLjQK' },
          ],
        },
      ],
    },
  },
};
const EACH = Object.entries(ASKED).flatMap(([what, { path, body }]) =>
  [false, true].map((stream) => ({
    what,
    stream,
    path,
    body: { model: 'policy', temperature: 0, ...body, ...(stream ? { stream } : {}) },
  })),
);
const IMPOSSIBLE = 'an-impossible-grammar';
const faults: string[] = [];
const beyondText = new Map<string, { status: number; said: string; call: string | undefined; isKept: boolean }>();
const normalized = new Map<string, { direct: NormalizedResponse; through: NormalizedResponse }>();

beforeAll(async () => {
  const postgres = await TestPostgres.create();
  const stop = AbortSignal.timeout(860_000);
  try {
    await withVllm(
      async (vllm) => {
        const gateway = await startGateway({
          host: '127.0.0.1',
          port: 0,
          engines: [vllm],
          databaseUrl: postgres.url,
          adminKey: 'the admin key',
          secret: 'a secret of sixteen characters',
          settings: { tokenIn: false },
        });
        for (const { what, stream, path, body } of EACH) {
          const trial = await trialOverHttp({ url: gateway.url, adminKey: 'the admin key' }, `as-${normalized.size}`);
          const direct = await fetch(`${vllm}/v1/${path}`, {
            method: 'POST',
            headers: { 'content-type': 'application/json' },
            body: JSON.stringify(body),
            signal: stop,
          });
          normalized.set(`${what} ${stream}`, {
            direct: await normalizeResponse(direct),
            through: await normalizeResponse(await trial.ask(`/${path}`, body)),
          });
        }
        const db = openDatabase(postgres.url);
        for (const [what, { path, body, keeps }] of Object.entries(BEYOND_TEXT)) {
          const trialId = `beyond-text-${beyondText.size}`;
          const trial = await trialOverHttp({ url: gateway.url, adminKey: 'the admin key' }, trialId);
          const reply = await trial.ask(`/${path}`, { model: 'policy', ...body });
          const text = await reply.text();
          const [call] = await readCalls(db, { trialId, attempt: 1 });
          beyondText.set(what, {
            status: reply.status,
            said: reply.ok ? '' : text,
            call: call?.status,
            isKept: JSON.stringify(call?.request ?? null).includes(keeps),
          });
        }
        const trial = await trialOverHttp({ url: gateway.url, adminKey: 'the admin key' }, IMPOSSIBLE);
        for (const stream of [false, true]) {
          const body = { model: 'policy', ...CHAT, stream, structured_outputs: { grammar: 'root ::= root' } };
          await (await trial.chat(body)).text().catch(() => {});
          await (await trial.chat({ model: 'policy', ...CHAT, stream })).text();
        }
        faults.push(
          ...(await readCalls(db, { trialId: IMPOSSIBLE, attempt: 1 })).map(
            ({ status, fault }) => `${status} ${fault}`,
          ),
        );
        await db.$client.end();
        await gateway.close();
      },
      stop,
      { args: ['--max-model-len', '2048'], layers: 4 },
    );
  } finally {
    await postgres.close();
  }
});

test.each(EACH)('the gateway answers $what as vLLM itself does (stream: $stream)', ({ what, stream }) => {
  const both = normalized.get(`${what} ${stream}`);
  expect(both?.direct).toMatchObject({ status: 200 });
  expect(both?.through).toEqual(both?.direct);
});

test.each(Object.keys(BEYOND_TEXT))(
  'the gateway answers %s and records the parts that the model was not shown',
  (what) => {
    expect(beyondText.get(what)).toEqual({ status: 200, said: '', call: 'completed', isKept: true });
  },
);

test('vLLM’s error about a grammar is recorded as the request’s fault, plain and streamed, and the next request is answered', () => {
  expect(faults).toEqual(['failed request', 'completed null', 'failed request', 'completed null']);
});
