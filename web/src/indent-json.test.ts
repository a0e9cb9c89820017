import { expect, test } from 'vitest';
import { indentJson } from './indent-json.ts';

test('JSON is indented with every number and name as it was written, and other text stays as it is', () => {
  expect(indentJson('{"id":12345678901234567890,"id":1e400,"a":{"b":[1,"x, {y}: \\"z\\""],"c":[],"d":{}}}')).toBe(
    `{
  "id": 12345678901234567890,
  "id": 1e400,
  "a": {
    "b": [
      1,
      "x, {y}: \\"z\\""
    ],
    "c": [],
    "d": {}
  }
}`,
  );
  for (const text of ['{"a":', 'rm -rf /tmp/x', '']) expect(indentJson(text)).toBe(text);
});
