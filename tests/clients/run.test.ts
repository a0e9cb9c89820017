import { tmpdir } from 'node:os';
import { expect, test } from 'vitest';
import type { Client } from './client.ts';
import { runClient } from './run.ts';

test('runClient reports a client whose program is missing as ENOENT, and the test’s process goes on', async () => {
  const gone: Client = {
    name: 'gone',
    protocol: 'messages',
    install: { own: 'nothing' },
    modes: [],
    bringsTools: false,
    says: [],
    start: () => ({ file: '/nowhere/to/be/found', args: [] }),
  };
  await expect(
    runClient(gone, { folder: tmpdir(), trialUrl: '', key: '', limitMs: 10_000, modes: [] }),
  ).rejects.toMatchObject({ code: 'ENOENT' });
});
