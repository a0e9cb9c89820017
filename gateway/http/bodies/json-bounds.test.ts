import { expect, test } from 'vitest';
import { checkBounds, JsonBounds } from './json-bounds.ts';

const LIMITS = { maxBodyNodes: 10 ** 6, maxBodyDepth: 500 };
const bytes = (text: string) => new TextEncoder().encode(text);

function countOf(pieces: Iterable<Uint8Array>): number {
  const bounds = new JsonBounds(LIMITS);
  for (const piece of pieces) bounds.add(piece);
  return bounds.nodes;
}

test.each([
  ['{"a":1,"b":[2,3]}', 6],
  ['"[{,:"', 0],
  ['{"a":"\\"[[[","b\\\\":[]}', 5],
  ['["\\\\",{}]', 3],
  ['["🦀,{","é"]', 2],
])(
  'the gateway counts a body’s brackets, commas and colons outside of strings, wherever its bytes are cut: %s',
  (text, nodes) => {
    const whole = bytes(text);
    expect(countOf([whole])).toBe(nodes);
    expect(countOf(Array.from(whole, (_, i) => whole.subarray(i, i + 1)))).toBe(nodes);
    for (let cut = 1; cut < whole.length; cut++)
      expect(countOf([whole.subarray(0, cut), whole.subarray(cut)])).toBe(nodes);
  },
);

test.each([
  ['nodes', JSON.stringify(Array(60).fill({})), { maxBodyNodes: 100 }, 413, 'max_body_nodes'],
  [
    'keys',
    JSON.stringify(Object.fromEntries(Array.from({ length: 60 }, (_, i) => [`k${i}`, i]))),
    { maxBodyNodes: 100 },
    413,
    'max_body_nodes',
  ],
  ['depth', `${'['.repeat(11)}${']'.repeat(11)}`, { maxBodyDepth: 10 }, 400, 'max_body_depth'],
  [
    'depth of a large body',
    `["${'x'.repeat(50_000)}",${'{"a":'.repeat(501)}1${'}'.repeat(502)}`,
    {},
    400,
    'max_body_depth',
  ],
])(
  'a request body past the limit of %s is refused with the name of the setting',
  (_what, text, changed, status, setting) => {
    const limits = { ...LIMITS, ...changed };
    const refusal = expect.objectContaining({ status, message: expect.stringContaining(setting) });
    expect(() => checkBounds(bytes(text), limits)).toThrow(refusal);
    expect(() => new JsonBounds(limits).add(bytes(text))).toThrow(refusal);
  },
);

test('a request body that is exactly at each limit is accepted', () => {
  const text = `[${'['.repeat(9)}${']'.repeat(9)},"${'x'.repeat(50_000)}"]`;
  expect(checkBounds(bytes(text), { maxBodyNodes: 11, maxBodyDepth: 10 })).toBe(11);
});
