import { tmpdir } from 'node:os';
import { expect, test } from 'vitest';
import type { Client } from './client.ts';
import { runClient } from './run.ts';

test('a client whose program is not there takes along the process that wanted to start it', async () => {
  const gone: Client = { name: 'gone', protocol: 'messages', install: { own: 'nothing' }, modes: [], bringsTools: false, says: [], start: () => ({ file: '/nowhere/to/be/found', args: [] }) };
  await expect(runClient(gone, { folder: tmpdir(), trialUrl: '', key: '', limitMs: 10_000, modes: [] })).rejects.toMatchObject({ code: 'ENOENT' });
});
