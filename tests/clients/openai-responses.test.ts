import OpenAI from 'openai';
import { expect, test } from 'vitest';
import { calling } from '../support/harness/calling.ts';
import { useTokenGateway } from '../support/harness/token-gateway.ts';

const gateway = useTokenGateway();
const TOOLS: OpenAI.Responses.Tool[] = [
  {
    type: 'function',
    name: 'ls',
    description: 'lists',
    parameters: { type: 'object', properties: { path: { type: 'string' } } },
    strict: false,
  },
  { type: 'custom', name: 'patch', description: 'edits' },
];
const LS = calling({ name: 'ls', arguments: { path: '🦀' } }, { name: 'patch', arguments: { input: 'a\n"b"' } });

/** Returns the items that clients of this protocol send back unchanged. */
const again = (item: OpenAI.Responses.ResponseOutputItem): OpenAI.Responses.ResponseInputItem[] =>
  item.type === 'message' ||
  item.type === 'reasoning' ||
  item.type === 'function_call' ||
  item.type === 'custom_tool_call'
    ? [item]
    : [];

test.each([
  [false, false],
  [false, true],
  [true, false],
  [true, true],
])(
  'OpenAI’s client reads every part of a response from the gateway, and later responses continue the recorded ids (stream: %s, by id: %s)',
  async (stream, byId) => {
    const trial = await gateway.trial();
    const client = new OpenAI({ apiKey: trial.key, baseURL: trial.baseUrl, maxRetries: 0 });
    gateway.toy.script = [{ text: `<think>hm</think>I look.${LS}` }, { text: LS }, { text: 'done' }];
    let input: OpenAI.Responses.ResponseInput = [{ role: 'user', content: 'look' }];
    let previous_response_id: string | null = null;
    const ends = [];
    for (let turn = 0; turn < 3; turn++) {
      const asked = { model: 'policy', instructions: 'be short', tools: TOOLS, input, previous_response_id };
      const reply: OpenAI.Responses.Response = stream
        ? await client.responses.stream(asked).finalResponse()
        : await client.responses.create(asked);
      ends.push([reply.status, reply.output_text, reply.output.map(({ type }) => type).join(' ')]);
      const results = reply.output.flatMap((item): OpenAI.Responses.ResponseInputItem[] => {
        if (item.type === 'function_call')
          return [
            { type: 'function_call_output', call_id: item.call_id, output: JSON.stringify(JSON.parse(item.arguments)) },
          ];
        return item.type === 'custom_tool_call'
          ? [{ type: 'custom_tool_call_output', call_id: item.call_id, output: item.input }]
          : [];
      });
      if (byId) [input, previous_response_id] = [results, reply.id];
      else input = [...input, ...reply.output.flatMap(again), ...results];
    }
    expect(ends).toEqual([
      ['completed', 'I look.', 'reasoning message function_call custom_tool_call'],
      ['completed', '', 'function_call custom_tool_call'],
      ['completed', 'done', 'message'],
    ]);
    const calls = await trial.calls();
    expect(calls.map(({ continuation }) => continuation)).toEqual([null, 'clean', 'clean']);
    expect(calls[1]?.request.messages).toMatchObject([
      {},
      {},
      {},
      { role: 'tool', content: '{"path":"🦀"}' },
      { role: 'tool', content: 'a\n"b"' },
    ]);
  },
);
