import type { JsonObject } from '../../../../gateway/json.ts';
import { calling } from '../../harness/calling.ts';
import type { Random } from './random.ts';

type Request = { path: string; body: JsonObject };
/** `item` is its call as an item of Responses. */
type Tool = { name: string; arguments: JsonObject; item: JsonObject };
/** The state of an agent's talk with its model throughout an attempt, with names from the last replies. */
export type Talk = {
  mark: string;
  tool: Tool | null;
  thinks: boolean;
  isInstructed: boolean;
  response: string | null;
  call: string;
};
/** `turns` counts past turns, in each of which the model gave the reply that it is told to give now. */
type Now = Talk & { turns: number; said: string; whole: string };

/** The marks of all agents. Each puts its own into everything that it says. */
export const MARKS = /<(agent-\d|warm)>/g;

const TOOLS: readonly Tool[] = [
  {
    name: 'ls',
    arguments: { path: '🦀', n: 1.5 },
    item: { type: 'function_call', name: 'ls', arguments: '{"path":"🦀","n":1.5}' },
  },
  { name: 'patch', arguments: { input: 'a\n"b"' }, item: { type: 'custom_tool_call', name: 'patch', input: 'a\n"b"' } },
  { name: 'fs__read', arguments: {}, item: { type: 'function_call', namespace: 'fs', name: 'read', arguments: '{}' } },
];
const SCHEMA = { type: 'object', properties: { path: { type: 'string' } } };
const ITEM_TOOLS = [
  { type: 'function', name: 'ls', parameters: SCHEMA },
  { type: 'custom', name: 'patch', format: { type: 'grammar', syntax: 'lark', definition: 'x' } },
  { type: 'namespace', name: 'fs', tools: [{ type: 'function', name: 'read', parameters: SCHEMA }] },
  { type: 'web_search' },
];
const IMAGE = 'data:image/png;base64,AAAA';

export function newTalk(mark: string, random: Random): Talk {
  return {
    mark,
    tool: random.pick([null, ...TOOLS]),
    thinks: random.chance(0.5),
    isInstructed: random.chance(0.5),
    response: null,
    call: 'call-0',
  };
}

export function noteReply(talk: Talk, text: string): void {
  talk.response = /resp_[0-9a-f]{32}/.exec(text)?.[0] ?? talk.response;
  talk.call = /call-\d+/.exec(text)?.[0] ?? talk.call;
}

/** Returns a request of some protocol that uses its tools, reasoning and parts. It has the toy engine's answer; Gemini's has no field for that. */
export function goodRequest(talk: Talk, random: Random): Request {
  const { mark, thinks, tool } = talk;
  const said = `${mark} says`;
  const whole = `${thinks ? `<think>${mark} thinks</think>` : ''}${said}${tool ? calling(tool) : ''}`;
  const { path, body } = random.pick([chat, completion, message, count, response, content, content])(
    { ...talk, turns: random.below(3), said, whole },
    random,
  );
  const line = { text: whole, ends: random.chance(0.9) };
  return {
    path,
    body: {
      model: 'm',
      ...body,
      stream: random.chance(0.5),
      chat_template_kwargs: { cue: { lines: [line, line], log: mark } },
    },
  };
}

const past = <T>({ turns }: { turns: number }, turn: (i: number) => T[]): T[] =>
  Array.from({ length: turns }, (_, i) => turn(i)).flat();

function chat(now: Now, random: Random): Request {
  const { mark, said, tool, call } = now;
  const called = tool && {
    id: call,
    type: 'function',
    function: { name: tool.name, arguments: JSON.stringify(tool.arguments) },
  };
  const user = (i: number): JsonObject => ({ role: 'user', content: [{ type: 'text', text: `${mark} ${i}` }] });
  const turns = past(now, (i): JsonObject[] => [
    user(i),
    { role: 'assistant', content: said, ...(called ? { tool_calls: [called] } : {}) },
    ...(called ? [{ role: 'tool', tool_call_id: call, content: [{ type: 'text', text: 'a.txt' }] }] : []),
  ]);
  const tools = TOOLS.map(({ name }) => ({ type: 'function', function: { name, parameters: SCHEMA } }));
  const more = random.chance(0.5)
    ? { logprobs: true, top_logprobs: 0, stream_options: { include_usage: true } }
    : { n: 2, parallel_tool_calls: false };
  return {
    path: '/v1/chat/completions',
    body: { messages: [...turns, user(now.turns)], tools, max_completion_tokens: 20, ...more },
  };
}

function completion({ mark, whole, ...now }: Now, random: Random): Request {
  const said = [...past(now, (i) => [`${mark} ${i}`, whole]), `${mark} ${now.turns}`];
  return {
    path: '/v1/completions',
    body: { prompt: said.join(''), max_tokens: 20, ...(random.chance(0.5) ? { n: 2 } : { logprobs: 1 }) },
  };
}

const message = (now: Now, random: Random): Request => ({
  path: '/v1/messages',
  body: { ...prompt(now, random), max_tokens: 20 },
});
const count = (now: Now, random: Random): Request => ({ path: '/v1/messages/count_tokens', body: prompt(now, random) });

function prompt(now: Now, random: Random): JsonObject {
  const { mark, said, tool, thinks, call, isInstructed } = now;
  const image = { type: 'image', source: { type: 'url', url: IMAGE } };
  const called = tool && { type: 'tool_use', id: call, name: tool.name, input: tool.arguments };
  const result = tool && {
    type: 'tool_result',
    tool_use_id: call,
    content: [{ type: 'text', text: 'a.txt' }, ...(random.chance(0.2) ? [image] : [])],
  };
  const user = (i: number): JsonObject => ({
    role: 'user',
    content: [...(i > 0 && result ? [result] : []), { type: 'text', text: `${mark} ${i}` }],
  });
  const thought = { type: 'thinking', thinking: `${mark} thinks`, signature: 'x' };
  const turns = past(now, (i) => [
    user(i),
    {
      role: 'assistant',
      content: [...(thinks ? [thought] : []), { type: 'text', text: said }, ...(called ? [called] : [])],
    },
  ]);
  return {
    ...(isInstructed ? { system: [{ type: 'text', text: `${mark} is brief` }] } : {}),
    messages: [...turns, user(now.turns)],
    tools: TOOLS.map(({ name }) => ({ name, input_schema: SCHEMA })),
    tool_choice: { type: 'auto' },
  };
}

function response(now: Now, random: Random): Request {
  const { mark, said, tool, thinks, call, isInstructed } = now;
  const image = { type: 'input_image', image_url: IMAGE };
  const user = (i: number): JsonObject => ({
    role: 'user',
    content: [{ type: 'input_text', text: `${mark} ${i}` }, ...(random.chance(0.1) ? [image] : [])],
  });
  const result = tool && {
    type: `${String(tool.item.type)}_output`,
    call_id: call,
    output: [{ type: 'input_text', text: 'a.txt' }],
  };
  const turns = past(now, (i): JsonObject[] => [
    user(i),
    ...(thinks
      ? [{ type: 'reasoning', summary: [], content: [{ type: 'reasoning_text', text: `${mark} thinks` }] }]
      : []),
    { type: 'message', role: 'assistant', content: [{ type: 'output_text', text: said }] },
    ...(tool ? [{ ...tool.item, call_id: call }] : []),
    ...(result ? [result] : []),
  ]);
  const goesOn = now.response !== null && random.chance(0.5);
  return {
    path: '/v1/responses',
    body: {
      input: [...(goesOn ? [result].filter(Boolean) : turns), user(now.turns)],
      ...(goesOn ? { previous_response_id: now.response } : {}),
      ...(isInstructed ? { instructions: `${mark} is brief` } : {}),
      ...(random.chance(0.3) ? { include: ['message.output_text.logprobs'] } : {}),
      tools: ITEM_TOOLS,
      tool_choice: 'auto',
      max_output_tokens: 20,
    },
  };
}

function content(now: Now, random: Random): Request {
  const { mark, said, tool, thinks, call, isInstructed } = now;
  const image = { inlineData: { mimeType: 'image/png', data: 'AAAA' } };
  const called = tool && { functionCall: { id: call, name: tool.name, args: tool.arguments } };
  const result = tool && { functionResponse: { id: call, name: tool.name, response: { output: 'a.txt' } } };
  const user = (i: number): JsonObject => ({
    role: 'user',
    parts: [...(i > 0 && result ? [result] : []), { text: `${mark} ${i}` }, ...(random.chance(0.1) ? [image] : [])],
  });
  const thought = { text: `${mark} thinks`, thought: true, thoughtSignature: 'AAAA' };
  const turns = past(now, (i) => [
    user(i),
    { role: 'model', parts: [...(thinks ? [thought] : []), { text: said }, ...(called ? [called] : [])] },
  ]);
  return {
    path: `/v1beta/models/m:${random.pick(['generateContent', 'streamGenerateContent?alt=sse', 'countTokens'])}`,
    body: {
      contents: [...turns, user(now.turns)],
      ...(isInstructed ? { systemInstruction: { parts: [{ text: `${mark} is brief` }] } } : {}),
      tools: [{ functionDeclarations: TOOLS.map(({ name }) => ({ name, parametersJsonSchema: SCHEMA })) }],
      generationConfig: {
        maxOutputTokens: 20,
        ...(random.chance(0.5) ? { candidateCount: 2 } : { responseLogprobs: true, logprobs: 1 }),
        ...(random.chance(0.5) ? { thinkingConfig: { includeThoughts: true } } : {}),
      },
    },
  };
}
