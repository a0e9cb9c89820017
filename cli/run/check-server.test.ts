import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { OpenAiServer } from '../../tests/support/fakes/openai-server.ts';
import { NO_RELAY } from './check-engines.ts';
import { checkServer } from './check-server.ts';

let server: OpenAiServer;
beforeEach(async () => void (server = await new OpenAiServer().start()));
afterEach(() => server.stop());

const report = vi.fn<(line: string) => void>();
const check = (path = '', key: string | null = 'sk-right') =>
  checkServer(
    `openai+${server.url}${path}`,
    NO_RELAY,
    key === null ? { report } : { keys: { [new URL(server.url).host]: key } },
  );

test('a server that lists its models below its base path for its key passes, and one whose key only the gateways have', async () => {
  await check('', 'any');
  Object.assign(server, { base: '/api/v1', key: 'sk-right' });
  await check('/api/v1');
  await check('/api/v1', null);
});

test('a server that refuses the key, has another base path or does not answer is named with what to do, and the key is not', async () => {
  Object.assign(server, { base: '/api/v1', key: 'sk-right' });
  const refused = check('/api/v1', 'sk-wrong');
  await expect(refused).rejects.toThrow(/^the server openai\+.* answered 401: .*--engine-keys HOST=VARIABLE$/);
  await expect(refused).rejects.not.toThrow('sk-wrong');
  await expect(check('')).rejects.toThrow(/answered 404 instead of its list of models: is its base path right/);
  await server.stop();
  await expect(check('/api/v1')).rejects.toMatchObject({
    code: 'missing_prerequisite',
    message: expect.stringMatching(/cannot be reached: .*ECONNREFUSED/),
  });
});

test('a server that only the gateways need reach is not refused, but named in a warning, when it cannot be reached from here', async () => {
  await server.stop();
  await check('', null);
  expect(report.mock.calls).toEqual([
    [expect.stringMatching(/^WARNING: the server openai\+.* cannot be reached from here: .*ECONNREFUSED.*gateways/)],
  ]);
});
