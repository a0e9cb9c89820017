import { expect, test } from 'vitest';
import { useTokenGateway } from '../testing/token-gateway.ts';

const gateway = useTokenGateway();
const MESSAGES = ['system', 'user', 'system', 'developer', 'user'].map((role, i) => ({ role, content: `${i}` }));

test.each([
  { strict: true, roles: ['system', 'user', 'user', 'user', 'user'] },
  { strict: false, roles: ['system', 'user', 'system', 'developer', 'user'] },
])('agents that speak as the system between turns are refused by a template that wants it first (strict: $strict)', async ({ strict, roles }) => {
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
