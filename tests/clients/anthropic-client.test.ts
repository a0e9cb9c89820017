import Anthropic from '@anthropic-ai/sdk';
import { expect, test } from 'vitest';
import { calling } from '../support/harness/calling.ts';
import { useTokenGateway } from '../support/harness/token-gateway.ts';

const gateway = useTokenGateway();
const TOOLS: Anthropic.Tool[] = [
  { name: 'ls', description: 'lists', input_schema: { type: 'object', properties: { path: { type: 'string' } } } },
];
const LS = calling({ name: 'ls', arguments: { path: '🦀', n: 1.5 } }, { name: 'ls', arguments: {} });

test.each([false, true])(
  'Anthropic’s client reads every part of a turn from the gateway, and later turns continue the recorded ids (stream: %s)',
  async (stream) => {
    const trial = await gateway.trial();
    const client = new Anthropic({ apiKey: trial.key, baseURL: `${gateway.gateway.url}/${trial.id}`, maxRetries: 0 });
    gateway.toy.script = [{ text: `<think>hm</think>I look.${LS}` }, { text: LS }, { text: 'done' }];
    const messages: Anthropic.MessageParam[] = [{ role: 'user', content: 'look' }];
    const ends = [];
    for (let turn = 0; turn < 3; turn++) {
      const asked = { model: 'policy', max_tokens: 100, system: 'be short', tools: TOOLS, messages };
      const reply = stream ? await client.messages.stream(asked).finalMessage() : await client.messages.create(asked);
      expect(reply.usage.input_tokens).toBeGreaterThan(0);
      const calls = reply.content.filter((block) => block.type === 'tool_use');
      ends.push([reply.stop_reason, reply.content.map(({ type }) => type).join(' '), calls.map(({ input }) => input)]);
      messages.push(
        { role: 'assistant', content: reply.content },
        { role: 'user', content: calls.map(({ id }) => ({ type: 'tool_result', tool_use_id: id, content: 'a.txt' })) },
      );
    }
    const inputs = [{ path: '🦀', n: 1.5 }, {}];
    expect(ends).toEqual([
      ['tool_use', 'thinking text tool_use tool_use', inputs],
      ['tool_use', 'tool_use tool_use', inputs],
      ['end_turn', 'text', []],
    ]);
    expect((await trial.calls()).map(({ continuation }) => continuation)).toEqual([null, 'clean', 'clean']);
  },
);

test('Anthropic’s client does not retry a call of a closed attempt and reads the type of the gateway’s error', async () => {
  const trial = await gateway.trial();
  const statuses: number[] = [];
  const client = clientOf(trial, statuses);
  await gateway.trial({ trialId: trial.id, attempt: 2 });
  await expect(client.messages.create(ASKED)).rejects.toMatchObject({
    status: 409,
    error: { type: 'error', error: { type: 'invalid_request_error' } },
  });
  expect(statuses).toEqual([409]);
  expect(await trial.calls()).toEqual([]);
});

test('Anthropic’s client retries and is answered when an engine fails for a moment', async () => {
  const trial = await gateway.trial();
  const statuses: number[] = [];
  gateway.toy.fault = (path) => (path.endsWith('/chat/completions') && statuses.length === 0 ? 503 : null);
  expect((await clientOf(trial, statuses).messages.create(ASKED)).content).toMatchObject([{ type: 'text' }]);
  expect(statuses).toEqual([502, 200]);
  expect((await trial.calls()).map(({ status }) => status)).toEqual(['failed', 'completed']);
});

const ASKED = { model: 'policy', max_tokens: 9, messages: [{ role: 'user' as const, content: 'x' }] };

/** Returns a client that adds the status of each of its replies to `statuses`. */
function clientOf({ id, key }: { id: string; key: string }, statuses: number[]): Anthropic {
  const counting = async (...args: Parameters<typeof fetch>) => {
    const reply = await fetch(...args);
    statuses.push(reply.status);
    return reply;
  };
  return new Anthropic({ apiKey: key, baseURL: `${gateway.gateway.url}/${id}`, fetch: counting });
}
