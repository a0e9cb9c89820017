import { once } from 'node:events';
import { createServer, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { expect, test } from 'vitest';
import { UndiciConnection } from './node/engine-connection.ts';
import { FetchConnection } from './workerd/fetch-connection.ts';
import { readText } from '../engines/connection.ts';

test.each([UndiciConnection, FetchConnection])(
  'the gateway stops at a limit of bytes when an engine sends a line without an end (%o)',
  async (Connection) => {
    const line = Buffer.alloc(100_000, 'x');
    const write = (response: ServerResponse): void => {
      while (response.writable && response.write(line));
      response.once('drain', () => write(response));
    };
    const server = createServer((_, response) => write(response.on('error', () => {}))).listen(0, '127.0.0.1');
    await once(server, 'listening');
    const { port } = server.address() as AddressInfo;
    const connection = new Connection(`http://127.0.0.1:${port}`, 1_000_000);
    try {
      const reply = await connection.send({
        method: 'POST',
        path: '/',
        body: '{}',
        signal: new AbortController().signal,
      });
      await expect(readText(reply.body)).rejects.toThrow('the reply is too long');
    } finally {
      await connection.close();
      server.closeAllConnections();
      server.close();
    }
  },
);
