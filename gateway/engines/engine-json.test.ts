import { expect, test } from 'vitest';
import { parseExact } from '../../core/exact-json.ts';
import { isObject } from '../../core/json.ts';
import { engineJson } from './engine-json.ts';

const written = (json: string) => {
  const body = parseExact(json);
  return engineJson(isObject(body) ? body : {});
};
/** Returns a request whose call has these arguments. */
const withArguments = (given: string) =>
  JSON.stringify({
    messages: [{ role: 'assistant', tool_calls: [{ id: 'c', function: { name: 'f', arguments: given } }] }],
  });

test('half a surrogate pair becomes U+FFFD, in texts and in names, and a whole pair stays', () => {
  expect(written(String.raw`{"prompt":"a\ud83d","stop":["\udc00b"],"\uD83D":{"x":"\ud83d\ude00"},"n":1.0}`)).toBe(
    String.raw`{"prompt":"a\ufffd","stop":["\ufffdb"],"\ufffd":{"x":"😀"},"n":1.0}`,
  );
});

test('a text that speaks of a half, with a backslash, stays as it is', () => {
  const text = String.raw`{"prompt":"a \\ud83d b \\\\ud83d c"}`;
  expect(written(text)).toBe(text);
});

test('half a pair within the arguments of a call, which engines parse, becomes U+FFFD; a whole one and a text of it stay', () => {
  const given = String.raw`{"a":"\ud83d","b":"\uD83D\uDE00","c":"\\ud83d","d":"\\\ud83d","\udc00":1}`;
  const expected = String.raw`{"a":"\ufffd","b":"\uD83D\uDE00","c":"\\ud83d","d":"\\\ufffd","\ufffd":1}`;
  expect(JSON.parse(written(withArguments(given)))).toEqual(JSON.parse(withArguments(expected)));
});
