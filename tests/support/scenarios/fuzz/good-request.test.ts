import { expect, test } from 'vitest';
import { useTokenGateway } from '../../harness/token-gateway.ts';
import { goodRequest, noteReply, newTalk } from './good-request.ts';
import { Random } from './random.ts';

const gateway = useTokenGateway();

/** The parts that replies must contain, by path, to show that tools, reasoning and several replies occur. */
const PARTS = {
  '/v1/chat/completions': ['"reasoning":', '"type":"function"', '"index":1,'],
  '/v1/completions': ['"index":1,'],
  '/v1/messages': [
    '"type":"thinking"',
    '"type":"thinking_delta"',
    '"type":"tool_use"',
    '"type":"input_json_delta"',
    '"type":"message"',
  ],
  '/v1/messages/count_tokens': ['"input_tokens":'],
  '/v1/responses': [
    '"type":"reasoning"',
    '"type":"function_call"',
    '"namespace":"fs"',
    '"type":"custom_tool_call"',
    '"previous_response_id":"resp_',
    '"type":"response.reasoning_text.delta"',
    '"type":"response.function_call_arguments.delta"',
    '"type":"response.custom_tool_call_input.delta"',
    '"type":"response.incomplete"',
  ],
  '/v1beta/models/m:generateContent': ['"usageMetadata":', '"index":1,', '"logprobsResult":'],
  '/v1beta/models/m:streamGenerateContent?alt=sse': ['data: {"candidates":', '"finishReason":', '"usageMetadata":'],
  '/v1beta/models/m:countTokens': ['"totalTokens":'],
};

test('the fuzzer’s valid requests are all answered and exercise tools, reasoning and recorded turns', async () => {
  gateway.toy.inParts = true;
  const random = new Random(7);
  const replies = new Map<string, string>();
  const continuations = new Set<string | null>();
  for (let life = 0; life < 8; life++) {
    const trial = await gateway.trial();
    const talk = newTalk(`<agent-${life}>`, random);
    for (let round = 0; round < 32; round++) {
      const { path, body } = goodRequest(talk, random);
      const reply = await gateway.post(`/${trial.id}${path}`, trial.key, body);
      const text = await reply.text();
      expect(reply.status, text.slice(0, 300)).toBe(200);
      noteReply(talk, text);
      replies.set(path, (replies.get(path) ?? '') + text);
    }
    for (const { continuation } of await trial.calls()) continuations.add(continuation);
  }
  for (const [path, parts] of Object.entries(PARTS))
    expect(
      parts.filter((part) => !replies.get(path)?.includes(part)),
      path,
    ).toEqual([]);
  expect(continuations).toContain('clean');
});
