import { expect, test } from 'vitest';
import { useTokenGateway } from '../testing/token-gateway.ts';

const gateway = useTokenGateway();
const MESSAGES = ['system', 'user', 'system', 'developer', 'user'].map((role, i) => ({ role, content: `${i}` }));

test.each([
  { strict: true, roles: ['system', 'user', 'user', 'user', 'user'] },
  { strict: false, roles: ['system', 'user', 'system', 'developer', 'user'] },
])('a system message between turns stays where it stands, as a user’s where the template wants it first (strict: $strict)', async ({ strict, roles }) => {
  const asked: string[][] = [];
  gateway.toy.fault = (path) => (strict && path === '/tokenize' ? 400 : null);
  gateway.toy.before = ({ path, body }) => void (path === '/v1/chat/completions' && asked.push(body.messages.map(({ role }) => role)));
  const trial = await gateway.trial();
  const first = await gateway.json(await trial.chat({ messages: MESSAGES }));
  const [{ message }] = first.choices as [{ message: unknown }];
  await trial.chat({ messages: [...MESSAGES, message, { role: 'user', content: 'more' }] });
  expect(asked).toEqual([roles]);
  const calls = await trial.calls();
  expect(calls.map(({ continuation }) => continuation)).toEqual([null, 'clean']);
  expect(calls[0]?.request.messages).toEqual(MESSAGES);
});

const IMAGE = { type: 'image_url', image_url: { url: 'data:image/png;base64,AA==' } };
const FILE = { type: 'file', file: { filename: 'a.pdf', file_data: 'data:application/pdf;base64,AA==' } };

test.each([true, false])('an image or a file is recorded, and reaches an engine only whose model takes it (text alone: %s)', async (textAlone) => {
  const asked: unknown[] = [];
  gateway.toy.fault = (path) => (textAlone && path === '/tokenize' ? 400 : null);
  gateway.toy.before = ({ path, body }) => void (path === '/v1/chat/completions' && asked.push(body.messages.map(({ content }) => content)));
  gateway.toy.script = ['a cat', 'bye'].map((text) => ({ text }));
  const trial = await gateway.trial();
  const looking = [{ role: 'user', content: [{ type: 'text', text: 'look' }, IMAGE] }, { role: 'user', content: [FILE, { type: 'text', text: 'read' }] }];
  const reply = await trial.chat({ messages: looking });
  expect(reply.status).toBe(200);
  const { choices } = await gateway.json(reply);
  const [{ message }] = choices as [{ message: unknown }];
  expect((await trial.chat({ messages: [...looking, message, { role: 'user', content: 'thanks' }] })).status).toBe(200);
  expect(asked[0]).toEqual(textAlone ? ['look', 'read'] : looking.map(({ content }) => content));
  const calls = await trial.calls();
  expect(calls[0]?.request.messages).toEqual(looking);
  if (textAlone) expect(calls.map(({ continuation }) => continuation)).toEqual([null, 'clean']);
  const counts = await gateway.metrics();
  expect([counts['trialgate_left_out_total{type="image"}'], counts['trialgate_left_out_total{type="file"}']]).toEqual(textAlone ? [1, 1] : [undefined, undefined]);
});

test('a template that does not expand tool references is told the names of the tools', async () => {
  const asked: unknown[] = [];
  gateway.toy.fault = (path) => (path === '/tokenize' ? 400 : null);
  gateway.toy.before = ({ path, body }) => void (path === '/v1/chat/completions' && asked.push(body.messages.at(-1)?.content));
  const trial = await gateway.trial();
  const found = { type: 'tool_result', tool_use_id: 'a', content: [{ type: 'tool_reference', tool_name: 'Grep' }] };
  const messages = [{ role: 'user', content: 'x' }, { role: 'assistant', content: [{ type: 'tool_use', id: 'a', name: 'ToolSearch', input: {} }] }, { role: 'user', content: [found] }];
  expect((await gateway.post(`/${trial.id}/v1/messages`, trial.key, { model: 'm', max_tokens: 9, messages })).status).toBe(200);
  expect(asked).toEqual(['Grep']);
});
