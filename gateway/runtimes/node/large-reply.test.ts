import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { UndiciConnection } from './engine-connection.ts';

test.each(['by its length', 'in one chunk', 'in small chunks'])(
  'an engine’s reply that is larger than the gateway’s read buffer and sent %s arrives whole',
  async (sent) => {
    const whole = Buffer.from(Array.from({ length: 400_000 }, (_, i) => `${i}\n`).join(''));
    const server = createServer((_, response) => {
      if (sent === 'by its length') return response.setHeader('content-length', whole.length).end(whole);
      const size = sent === 'in one chunk' ? whole.length : 700;
      for (let at = 0; at < whole.length; at += size) response.write(whole.subarray(at, at + size));
      response.end();
    }).listen(0, '127.0.0.1');
    await once(server, 'listening');
    const { port } = server.address() as AddressInfo;
    const connection = new UndiciConnection(`http://127.0.0.1:${port}`);
    try {
      const reply = await connection.send({
        method: 'POST',
        path: '/',
        body: '{}',
        signal: new AbortController().signal,
      });
      const parts: Uint8Array[] = [];
      for await (const part of reply.body) {
        parts.push(part);
        for (let turn = 0; turn < 20; turn++) await nextTurn();
      }
      expect(Buffer.concat(parts).equals(whole)).toBe(true);
    } finally {
      await connection.close();
      server.closeAllConnections();
      server.close();
    }
  },
);
