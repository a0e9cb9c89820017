import { expect, test } from 'vitest';
import type { ProtocolName } from '../../store/schema.ts';
import { useSharedToyGateway } from '../../tests/support/harness/token-gateway.ts';
import { PROTOCOLS } from './all.ts';

const gateway = useSharedToyGateway();
const messages = [{ role: 'user', content: 'say it' }];
const ASKED: Record<ProtocolName, object> = {
  chat_completions: { messages },
  completions: { prompt: 'say it' },
  messages: { messages, max_tokens: 50 },
  responses: { input: 'say it' },
  gemini: { contents: [{ role: 'user', parts: [{ text: 'say it' }] }] },
};
const CASES = PROTOCOLS.flatMap(({ name, path }) =>
  [false, true].map((stream) => ({ name, path: pathOf(name, path, stream), stream })),
);

/** Gemini's URL says whether the reply is streamed. */
function pathOf(name: ProtocolName, path: string, stream: boolean): string {
  return name === 'gemini' && stream ? path.replace(':generateContent', ':streamGenerateContent?alt=sse') : path;
}

test.each(CASES)(
  '$name (stream: $stream): a call whose URL names no trial is recorded with the trial that its key names',
  async ({ name, path, stream }) => {
    const [trial, other] = [await gateway.trial(), await gateway.trial()];
    gateway.toy.script = [{ text: 'naïve 🦀' }];
    const reply = await gateway.post(path, trial.key, { ...ASKED[name], stream });
    expect(reply.status).toBe(200);
    await reply.text();
    expect(await trial.calls()).toMatchObject([{ protocol: name, stream, status: 'completed', untrainable: null }]);
    expect(await other.calls()).toEqual([]);
  },
);

test.each(CASES)(
  '$name (stream: $stream): a call past the budget ends with its protocol’s word for a length limit, and no engine is asked',
  async ({ name, path, stream }) => {
    const trial = await gateway.trial({ budgets: { calls: 1 } });
    const ask = () => gateway.post(path, trial.key, { ...ASKED[name], stream });
    await (await ask()).text();
    const refused = await ask();
    expect(refused.status).toBe(200);
    expect(await refused.text()).toMatch(/"(length|max_tokens|max_output_tokens|MAX_TOKENS)"/);
    expect(gateway.toy.generated).toHaveLength(1);
    expect((await trial.calls()).map(({ status }) => status)).toEqual(['completed', 'failed']);
  },
);

/** Half an emoji, as a program leaves it that cuts a text at a number of UTF-16 units. */
const HALF = '\ud83d';
const CUT: Record<ProtocolName, object[]> = {
  chat_completions: [
    { messages: [{ role: 'user', content: `out: ${HALF}` }], stop: [HALF] },
    {
      messages: [
        ...messages,
        {
          role: 'assistant',
          content: null,
          tool_calls: [{ id: 'c', type: 'function', function: { name: 'f', arguments: JSON.stringify({ x: HALF }) } }],
        },
        { role: 'tool', tool_call_id: 'c', content: HALF },
      ],
    },
  ],
  completions: [{ prompt: HALF }],
  messages: [
    { max_tokens: 50, system: HALF, messages },
    {
      max_tokens: 50,
      messages: [
        ...messages,
        { role: 'assistant', content: [{ type: 'tool_use', id: 'c', name: 'f', input: { x: HALF } }] },
        { role: 'user', content: [{ type: 'tool_result', tool_use_id: 'c', content: HALF }] },
      ],
    },
  ],
  responses: [
    { input: HALF, instructions: HALF },
    {
      input: [
        ...messages,
        { type: 'function_call', call_id: 'c', name: 'f', arguments: JSON.stringify({ x: HALF }) },
        { type: 'function_call_output', call_id: 'c', output: HALF },
      ],
    },
  ],
  gemini: [
    { contents: [{ role: 'user', parts: [{ text: HALF }] }] },
    {
      contents: [
        { role: 'user', parts: [{ text: 'say it' }] },
        { role: 'model', parts: [{ functionCall: { name: 'f', args: { x: HALF } } }] },
        { role: 'user', parts: [{ functionResponse: { name: 'f', response: { output: HALF } } }] },
      ],
    },
  ],
};

test.each(PROTOCOLS.flatMap(({ name, path }) => CUT[name].map((body, i) => ({ name, path, i, body }))))(
  '$name: a text that was cut within a character is answered, and the record keeps it (request $i)',
  async ({ name, path, body }) => {
    const trial = await gateway.trial();
    for (let turn = 0; turn < 2; turn++) {
      const reply = await gateway.post(pathOf(name, path, false), trial.key, body);
      expect([reply.status, await reply.text()]).toEqual([200, expect.any(String)]);
    }
    const calls = await trial.calls();
    expect(calls).toMatchObject([{ status: 'completed' }, { status: 'completed' }]);
    expect(JSON.stringify(calls[0]?.request)).toContain(String.raw`\ud83d`);
  },
);
