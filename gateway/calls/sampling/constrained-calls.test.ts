import { expect, test } from 'vitest';
import { calling } from '../../../tests/support/harness/calling.ts';
import { useTokenGateways } from '../../../tests/support/harness/token-gateway.ts';
import { decode } from '../../../tests/support/fakes/toy-tokenizer.ts';
import { constraintsOf } from './constraints.ts';

const context = useTokenGateways();
const ASKED = [{ role: 'user', content: 'look' }];
const tool = (strict?: boolean) => ({
  type: 'function',
  function: { name: 'ls', parameters: { type: 'object' }, ...(strict === undefined ? {} : { strict }) },
});
const SCHEMA = { type: 'object', properties: { name: { type: 'string' } } };
const LS = calling({ name: 'ls', arguments: {} });
const BY_NAME = { type: 'function', function: { name: 'ls' } };

test('with `constrained_decoding: hint` the call of a forced tool keeps the protocol’s form and is trainable, and the next turn continues its ids', async () => {
  await context.serve({ bindsTools: 'strict' });
  const trial = await context.trial({ sampling: { temperature: 1, constrained_decoding: 'hint' } });
  context.toy.script = [{ text: LS }, { text: LS }, { text: '{"name": "a.txt"}' }];
  const bodies: Record<string, unknown>[] = [];
  context.toy.before = ({ path, body }) =>
    void (path === '/v1/chat/completions' || path.endsWith('/render') ? bodies.push(structuredClone(body)) : null);
  const messages: Record<string, unknown>[] = [...ASKED];
  for (const fields of [
    { tool_choice: 'required' },
    { tool_choice: BY_NAME },
    { tool_choice: 'auto', response_format: { type: 'json_schema', json_schema: { name: 'seen', schema: SCHEMA } } },
  ]) {
    const reply = await (await trial.chat({ messages, tools: [tool(true)], ...fields })).json();
    const { message } = reply.choices[0];
    messages.push(
      message,
      ...(message.tool_calls ?? []).map(({ id }: { id: string }) => ({
        role: 'tool',
        tool_call_id: id,
        content: 'a.txt',
      })),
    );
  }
  expect(messages.map(({ role }) => role)).toEqual(['user', 'assistant', 'tool', 'assistant', 'tool', 'assistant']);
  for (const body of bodies) expect(constraintsOf(body, 'strict')).toEqual([]);
  const calls = await trial.calls();
  expect(calls.map(({ untrainable, continuation }) => [untrainable, continuation])).toEqual([
    [null, null],
    [null, 'clean'],
    [null, 'clean'],
  ]);
  expect(calls.map(({ sampling }) => [sampling.constraints, sampling.constrained_decoding])).toEqual([
    [['tool_choice'], 'hint'],
    [['tool_choice'], 'hint'],
    [['strict_tools', 'response_format'], 'hint'],
  ]);
  expect(calls[0]?.request).toMatchObject({ messages: ASKED, tool_choice: 'required' });
  const prompt = decode(Array.from(calls[2]?.promptTokenIds ?? []));
  for (const hint of [
    'look\n\nAnswer by calling the tool ls.',
    'a.txt\n\nAnswer by calling the tool ls.',
    'When you answer without calling a tool: Answer with one JSON value',
  ])
    expect(prompt).toContain(hint);
  const [sample, ...others] = await context.samplesOf(trial.id);
  expect([sample?.call_ids.length, others]).toEqual([3, []]);
  expect(await context.metrics()).toMatchObject({
    'trialgate_constrained_calls_total{field="tool_choice",decoding="hint"}': 2,
  });
});

test('without hints the engine gets a call’s constraint, the call is not trained, and the log advises the client once a trial', async () => {
  const lines: string[] = [];
  await context.serve({}, { log: (line, { level } = {}) => lines.push(`${level}: ${line}`) });
  const trial = await context.trial();
  const asked = { messages: ASKED, tools: [tool()], tool_choice: 'required' };
  const headers = { authorization: `Bearer ${trial.key}`, 'user-agent': 'pydantic-ai/2.68.0' };
  const tools: unknown[] = [];
  context.toy.before = ({ body }) => void tools.push(body.tool_choice);
  for (let i = 0; i < 2; i++) await trial.chat(asked, { headers });
  expect(tools).toContain('required');
  expect(await trial.calls()).toMatchObject(
    Array(2).fill({
      untrainable: 'sampling_not_reproducible',
      sampling: { constraints: ['tool_choice'], constrained_decoding: 'enforce', client: 'pydantic-ai/2.68.0' },
    }),
  );
  expect(lines.filter((line) => line.includes('constrained_decoding: hint'))).toEqual([
    expect.stringMatching(
      /^warning: trial .*: calls are not trained: the requests use tool_choice \(pydantic-ai: output_type\), so/,
    ),
  ]);
  expect(await context.metrics()).toMatchObject({
    'trialgate_constrained_calls_total{field="tool_choice",decoding="enforce"}': 2,
  });
});

test.each([
  ['never', undefined, null],
  ['never', true, null],
  ['strict', undefined, null],
  ['strict', true, 'sampling_not_reproducible'],
  ['always', undefined, 'sampling_not_reproducible'],
] as const)(
  'with an engine whose grammar binds tools "%s", a call with a tool of `strict: %s` is recorded as untrainable: %s',
  async (bindsTools, strict, untrainable) => {
    await context.serve({ bindsTools });
    const trial = await context.trial();
    await trial.chat({ messages: ASKED, tools: [tool(strict)] });
    expect(await trial.calls()).toMatchObject([{ untrainable }]);
  },
);
