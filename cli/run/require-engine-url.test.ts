import { expect, test } from 'vitest';
import { requireEngineUrl } from './require-engine-url.ts';

test.each(['http://a:1', 'unix:/run/a.sock', 'openai+https://a/v1', 'openai+relay:w'])(
  'the engine %s is taken',
  (url) => {
    requireEngineUrl(url);
  },
);

test.each(['openai+a:8000', 'opnai+https://a/v1', 'a:8000'])(
  'the engine %s, whose form is wrong, is refused with the right forms',
  (url) => {
    expect(() => requireEngineUrl(url)).toThrow(`${url} is no engine: expected an engine: http://host:port or`);
  },
);

test.each(['openai+https://user:KEY@a/v1', 'openai+https://a/v1?key=KEY', 'openai+https://a/v1#KEY'])(
  'the refusal of an engine’s URL with a key does not repeat the key: %s',
  (url) => {
    expect(() => requireEngineUrl(url)).toThrow(/without a key, which engine_keys names/);
    expect(() => requireEngineUrl(url)).not.toThrow('KEY');
  },
);
