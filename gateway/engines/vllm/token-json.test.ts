import { expect, test } from 'vitest';
import { generator } from '../../../tests/support/scenarios/converse.ts';
import { choicesOf } from '../../../store/calls/choices.ts';
import { hide } from '../completion.ts';
import { compactLogprobs, TokenChunk } from './token-json.ts';
import { sampledOf } from './tokens.ts';

const HIDDEN = { logprobs: false, tokenIds: false, usage: false };
const TEXTS = [
  ' word',
  '',
  '"',
  '\\',
  '\n\t',
  '\u0000',
  '🦀',
  '\ud83e',
  '}]}',
  '"logprobs":{"content":[',
  ']',
  '{"token":"x","logprob":-1}',
  '\u2028',
];

const seeded = (seed: number) => {
  const random = generator(seed);
  const pick = <T>(list: readonly T[]): T => list[Math.floor(random() * list.length)] as T;
  const entry = () => {
    const token = pick(TEXTS);
    const bytes = pick([null, [...Buffer.from(token)]]);
    const logprob = pick([-0.5, -12.25, 0, -9999, -1e-7, -3.5e-12]);
    const top_logprobs = pick([
      [],
      [{ token, logprob, bytes }],
      [
        { token, logprob, bytes },
        { token: pick(TEXTS), logprob, bytes: null },
      ],
    ]);
    return pick([
      { token, logprob, bytes, top_logprobs },
      { token, logprob, bytes },
      { token, token_id: 7, logprob },
    ]);
  };
  return { pick, entry, random };
};

/** Returns a chunk of the common form or close to it. */
function chunk(seed: number): string {
  const { pick, entry } = seeded(seed);
  const head = pick([
    { id: 'c', object: 'chat.completion.chunk', created: 7, model: 'policy' },
    { id: pick(TEXTS), object: 'x', created: 1.5, model: 'm', service_tier: null },
  ]);
  const delta = pick<unknown>([
    { content: pick(TEXTS) },
    { content: pick(TEXTS) },
    { content: pick(TEXTS), reasoning: null },
    { role: 'assistant', content: '' },
    { tool_calls: [] },
  ]);
  const logprobs = pick<unknown>([
    { content: [entry()] },
    { content: [entry()] },
    { content: [entry(), entry()] },
    null,
  ]);
  const finish_reason = pick([null, null, null, 'stop']);
  const choice = {
    index: pick([0, 0, 1]),
    delta,
    logprobs,
    finish_reason,
    ...pick<object>([{}, { stop_reason: null }]),
    token_ids: pick([[5], [151_935], [5, 6], []]),
    ...pick<object>([{}, { weight_versions: null }]),
  };
  const said = pick([choice, choice, textChoice(seed)]);
  return JSON.stringify({
    ...head,
    choices: pick([[said], [said], []]),
    ...pick<object>([{}, { system_fingerprint: 'f' }, { usage: null }, { prompt_token_ids: null }]),
  });
}

/** Returns a text completion's choice of the common form or close to it. */
function textChoice(seed: number) {
  const { pick } = seeded(seed + 2_000_000);
  const [tokens, top] = [[pick(TEXTS)], pick([{}, { [pick(TEXTS)]: -0.5 }, { a: -1e-7, [pick(TEXTS)]: -3 }, null])];
  const token_logprobs = pick<unknown>([[-0.5], [-1e-7], [null], [-1, -2]]);
  const logprobs = {
    text_offset: [pick([0, 12])],
    token_logprobs,
    tokens,
    ...pick<object>([{ top_logprobs: [top] }, { top_logprobs: [top] }, { top_logprobs: [] }, {}]),
  };
  const ids = pick<object>([
    { prompt_token_ids: null, token_ids: [5] },
    { token_ids: [5], prompt_token_ids: null },
    { token_ids: [5] },
    { token_ids: [5, 6] },
    { prompt_token_ids: [1], token_ids: [5] },
  ]);
  return {
    index: pick([0, 1]),
    text: pick(TEXTS),
    logprobs: pick<unknown>([logprobs, logprobs, null]),
    finish_reason: pick([null, null, 'stop']),
    ...pick<object>([{}, { stop_reason: null }]),
    ...ids,
  };
}

test('TokenChunk reads from an engine’s chunk, without a JSON parser, what a JSON parser reads', () => {
  const read = { chats: 0, texts: 0 };
  for (let seed = 0; seed < 20_000; seed++) {
    const data = chunk(seed);
    const token = TokenChunk.read(data);
    if (!token) continue;
    read[token.isText ? 'texts' : 'chats'] += 1;
    const parsed = JSON.parse(data) as Record<string, unknown>;
    const [choice] = choicesOf(parsed);
    expect({ completion: [token.tokenId], logprobs: [token.logprob], mask: null }).toEqual(sampledOf(choice ?? {}));
    const said = token.isText ? choice?.text : choice?.delta;
    expect([token.index, token.isText ? token.content : { content: token.content }, null]).toEqual([
      choice?.index,
      said,
      choice?.finish_reason,
    ]);
    expect(withoutNulls(JSON.parse(token.shown))).toEqual(withoutNulls(hide(parsed, HIDDEN)));
  }
  expect(Math.min(read.chats, read.texts)).toBeGreaterThan(100);
});

test('TokenChunk never reads bytes that are not JSON as a chunk', () => {
  for (let seed = 0; seed < 20_000; seed++) {
    const { random } = seeded(seed + 1_000_000);
    const data = chunk(seed % 50);
    const at = Math.floor(random() * data.length);
    const broken =
      data.slice(0, at) + String.fromCharCode(Math.floor(random() * 128)) + data.slice(at + Math.floor(random() * 3));
    const token = TokenChunk.read(broken);
    if (token) expect(() => [JSON.parse(broken), JSON.parse(token.shown)]).not.toThrow();
  }
});

test('compactLogprobs keeps a reply’s log-probabilities, its ids and what the agent is shown of it', () => {
  let compacted = 0;
  for (let seed = 0; seed < 5_000; seed++) {
    const { pick, entry, random } = seeded(seed);
    const choices = Array.from({ length: pick([1, 1, 3]) }, (_, index) => {
      const content = Array.from({ length: Math.floor(random() * 6) }, entry);
      return {
        index,
        message: { role: 'assistant', content: pick(TEXTS) },
        logprobs: pick<unknown>([
          { content },
          { content },
          { content, extra: null },
          { content: [...content, { odd: 1 }] },
          null,
        ]),
      };
    });
    const reply = { id: pick(TEXTS), choices };
    const compact = JSON.parse(compactLogprobs(JSON.stringify(reply))) as typeof reply;
    if (JSON.stringify(compact).includes('token_logprobs')) compacted += 1;
    expect(compact.choices.map((choice) => sampledOf(choice))).toEqual(
      reply.choices.map((choice) => sampledOf(choice)),
    );
    expect(hide(compact, HIDDEN)).toEqual(hide(reply, HIDDEN));
  }
  expect(compacted).toBeGreaterThan(1_000);
});

/** The common form may keep a hidden field that is null. */
function withoutNulls(value: unknown): unknown {
  return JSON.parse(
    JSON.stringify(value, (key, each: unknown) => (each === null && key === 'weight_versions' ? undefined : each)),
  );
}
