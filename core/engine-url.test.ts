import { expect, test } from 'vitest';
import { listenerOf, pathBelow } from './engine-url.ts';

test.each([
  ['http://a:1', 'http://a:1/v1/models'],
  ['http://a:1/v1', 'http://a:1/v1/models'],
  ['openai+http://a:1', 'http://a:1/v1/models'],
  ['openai+https://a/api/v1/', 'https://a/api/v1/models'],
  ['openai+https://a/v2', 'https://a/v2/models'],
  ['unix:/run/a.sock', 'http://engine/v1/models'],
  ['openai+relay:w1', 'null/v1/models'],
])('the routes of the engine %s are below its base path: %s', (url, expected) => {
  const { origin, base } = listenerOf(url);
  expect(`${origin}${pathBelow(base, '/v1/models')}`).toBe(expected);
  expect(pathBelow(base, '/health')).toBe('/health');
});
