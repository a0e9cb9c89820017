import { expect, test } from 'vitest';
import { requestOf } from '../../tests/support/scenarios/protocol-request.ts';
import { TokenChunk } from '../engines/vllm/token-json.ts';
import type { JsonObject } from '../json.ts';
import { PROTOCOLS } from './all.ts';

const CALL = '00000000-1111-2222-3333-444444444444';
const HEAD = { id: 'c', object: 'chat.completion.chunk', created: 1, model: 'policy' };
const chunk = (delta: JsonObject, finish_reason: string | null = null) => ({
  ...HEAD,
  choices: [{ index: 0, delta, logprobs: null, finish_reason }],
});
const token = (content: string) => ({
  ...HEAD,
  choices: [
    {
      index: 0,
      delta: { content },
      logprobs: { content: [{ token: content, logprob: -1, bytes: null }] },
      finish_reason: null,
      token_ids: [5],
    },
  ],
});
const called = (more: JsonObject) => chunk({ tool_calls: [{ index: 0, ...more }] });
/** Between its tokens the reply has everything that opens and closes its parts. */
const CHUNKS: JsonObject[] = [
  chunk({ role: 'assistant', content: '' }),
  token(''),
  chunk({ reasoning: 'hm' }),
  token('Hel'),
  token('lo "🦀"\n'),
  token(''),
  token('\ud83e'),
  called({ id: 'a', type: 'function', function: { name: 'f', arguments: '{' } }),
  token('meanwhile'),
  called({ function: { arguments: '}' } }),
  chunk({}, 'tool_calls'),
  { ...HEAD, choices: [], usage: { prompt_tokens: 3, completion_tokens: 5, total_tokens: 8 } },
];
const ASKED = {
  model: 'm',
  stream: true,
  max_tokens: 9,
  messages: [{ role: 'user', content: 'x' }],
  input: 'x',
  contents: [{ parts: [{ text: 'x' }] }],
  tools: [],
};

test.each(PROTOCOLS)(
  '$name: a chunk of one token that takes the fast path reads the same as on the ordinary path',
  (protocol) => {
    const request = protocol.parse(
      requestOf(
        protocol.name === 'completions' ? { ...ASKED, prompt: 'x' } : ASKED,
        'http://gateway/v1beta/models/m:streamGenerateContent?alt=sse',
      ),
    );
    const [passing, writing] = [protocol.writer(request, CALL), protocol.writer(request, CALL)];
    let passed = 0;
    for (const each of CHUNKS) {
      const one = TokenChunk.read(JSON.stringify(each));
      const fast = one && passing.pass(one);
      if (fast !== null) passed += 1;
      const shown = one
        ? { ...each, choices: [{ index: 0, delta: { content: one.content }, finish_reason: null }] }
        : each;
      expect(fast ?? passing.write(shown, 3)).toBe(writing.write(shown, 3));
    }
    expect(passing.end()).toBe(writing.end());
    expect(passed).toBeGreaterThan(2);
  },
);
