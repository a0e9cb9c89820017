import { once } from 'node:events';
import { connect } from 'node:net';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { detectIsolation } from './isolation.ts';
import { openServerSandbox } from './server-sandbox.ts';
import { temporaryHome } from '../../tests/support/harness/sandbox-fixtures.ts';

test('a process that ends with requests unread ends only its own connection, and nobody can connect after it', async () => {
  const folder = await temporaryHome();
  onTestFinished(() => folder[Symbol.asyncDispose]());
  const read = Promise.withResolvers<unknown>();
  const closed = Promise.withResolvers<void>();
  const { sandbox, remove } = await openServerSandbox({
    home: folder.home,
    name: 'server.1',
    socket: 'it.sock',
    isolation: await detectIsolation(),
    prepare: async () => {},
    onMessage: (message, connection) => {
      connection.once('close', closed.resolve);
      connection.write('a request that nobody reads\n', () => read.resolve(message));
    },
  });
  const path = join(sandbox.root, 'it.sock');
  const server = connect(path);
  server.pause();
  server.write('{"ready": true}\n');
  expect(await read.promise).toEqual({ ready: true });
  const [refusal] = await once(connect(path), 'error');
  expect(refusal).toMatchObject({ code: expect.stringMatching(/ECONNREFUSED|ENOENT/) });
  // The kernel resets a connection whose end has unread bytes.
  server.destroy();
  await closed.promise;
  await remove();
});
