import { expect, test } from 'vitest';
import { asNumber, isRawNumber, parseExact, stringifyExact } from './exact-json.ts';
import { isObject } from './json.ts';

test.each([
  '{"a":12345678901234567890,"b":1.0,"c":9223372036854775807,"d":1e5,"e":-0,"f":0.10,"g":0.12345678901234567890,"h":-0.0}',
  '{"10":1,"2":{"1":[],"0":null},"a":1,"1":2}',
  '{"\uE00010":1,"2":"\uE0003","x":",\\"4\\":5","y":"{\\"6\\":1.0}"}',
  '[1.0,[1,2.50],{"007":1,"7":2}]',
  '{"a\\"10":1,"\\\\":2,"":3,"__proto__":{"5":1.0}}',
  '[0.1,1e-7,-12.5,123456789012345]',
  '{"lr":0.0000001,"ts":1732390000.123456789,"price":1234567890123.45678,"x":[-0.00000012, 0.000001]}'.replace(' ', ''),
])('stringifyExact writes %s exactly as parseExact read it', (text) => {
  expect(stringifyExact(parseExact(text))).toBe(text);
});

test('a number that parseExact keeps as it was written has its value and does not count as an object', () => {
  const value = parseExact('{"t": 1.0, "u": 2}');
  expect(isObject(value)).toBe(true);
  const { t, u } = isObject(value) ? value : {};
  expect([isRawNumber(t), isObject(t), asNumber(t), isRawNumber(u), asNumber(u)]).toEqual([true, false, 1, false, 2]);
});
