import { expect, test } from 'vitest';
import { engineAt } from '../../core/engine-url.ts';
import { ENGINE_URL, urlFormsOf, WORKER_ENGINE_URL } from './url-forms.ts';

test('a URL with a key is not taken for an engine’s URL', () => {
  for (const url of ['openai+https://key@a', 'openai+https://a/v1?key=k', 'openai+https://a#k'])
    expect([ENGINE_URL.test(url), WORKER_ENGINE_URL.test(url)]).toEqual([false, false]);
});

test('a word before a URL must be a kind of engine, on Node and in a Worker', () => {
  for (const url of ['opnai+https://a/v1', 'vllm+http://a:1', '+http://a'])
    expect([ENGINE_URL.test(url), WORKER_ENGINE_URL.test(url)]).toEqual([false, false]);
});

test.each(['http', 'https'])(
  'a kind that is added names its engines by %s, behind sockets and behind relay workers',
  (how) => {
    const forms = urlFormsOf(['openai', 'toy']);
    for (const kind of ['openai', 'toy']) {
      const url = `${kind}+${how}://a:1/v1`;
      expect([forms.any.test(url), forms.inWorker.test(url), engineAt(url).kind]).toEqual([true, true, kind]);
      expect([`${kind}+unix:/a.sock`, `${kind}+relay:w1`].filter((each) => forms.any.test(each))).toHaveLength(2);
      expect(forms.text).toContain(`${kind}+https://`);
    }
  },
);

test.each(['http://a:1', 'https://a', 'relay'])('a Worker takes the engine %s', (url) => {
  expect(WORKER_ENGINE_URL.test(url)).toBe(true);
});

test.each(['unix:/a.sock', 'openai+unix:/a.sock', 'http://a:1/v1', 'relay:w1', 'relays'])(
  'a Worker does not take the engine %s',
  (url) => {
    expect(WORKER_ENGINE_URL.test(url)).toBe(false);
  },
);
