import { expect, test } from 'vitest';
import { ENGINE_KEY, keyHeader, readEngineKeys } from './engine-keys.ts';

const PLACES: Record<string, string> = { A_KEY: 'first', '/run/key': 'second\n' };

test('keys are read from variables and files, and go to the `openai+` engine of their host only', () => {
  const keys = readEngineKeys(['api.example=A_KEY', '127.0.0.1:8080=/run/key'], (place) => PLACES[place]);
  expect(keyHeader(keys, 'openai+https://api.example/v1')).toEqual({ authorization: 'Bearer first' });
  expect(keyHeader(keys, 'openai+http://127.0.0.1:8080')).toEqual({ authorization: 'Bearer second' });
  for (const other of ['https://api.example', 'openai+http://127.0.0.1', 'openai+unix:/a.sock', 'openai+relay:w'])
    expect(keyHeader(keys, other)).toEqual({});
});

test.each([
  ['a.example=NO_KEY', 'the environment variable NO_KEY is not set'],
  ['a.example=/none', 'the file /none has none'],
])('a key that is missing is refused with the place where it should be: %s', (entry, why) => {
  expect(() => readEngineKeys([entry], (place) => PLACES[place])).toThrow(`the key of a.example is missing: ${why}`);
});

test('a key in place of a variable’s name is no entry', () => {
  for (const entry of ['a.example=sk-secret', 'a.example=lower', 'a.example', 'https://a.example=A_KEY'])
    expect(ENGINE_KEY.test(entry)).toBe(false);
});
