import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { mkdir } from 'node:fs/promises';
import { connect, createServer, type Socket } from 'node:net';
import { join } from 'node:path';
import { buffer } from 'node:stream/consumers';
import { expect, it } from 'vitest';
import { temporaryHome } from '../../../tests/support/harness/sandbox-fixtures.ts';
import { listenIn } from '../listen-in.ts';
import { openTunnel, type Tunnel } from './tunnel.ts';

/** Opens a tunnel to a server, behind a path that is too long for a socket. */
async function tunnelTo(
  serve: (inside: Socket) => void,
): Promise<Tunnel & { connections: () => number } & AsyncDisposable> {
  const stack = new AsyncDisposableStack();
  const { home } = stack.use(await temporaryHome());
  const folder = join(home, 'deep'.repeat(40));
  await mkdir(folder);
  let connections = 0;
  const server = createServer({ allowHalfOpen: true }, (inside) => {
    connections += 1;
    serve(inside.on('error', () => {}));
  });
  stack.defer(await listenIn(server, folder, 'gateway.sock'));
  const tunnel = stack.use(await openTunnel(join(folder, 'gateway.sock')));
  const { port, token } = tunnel;
  return { port, token, connections: () => connections, [Symbol.asyncDispose]: () => stack.disposeAsync() };
}

function open(port: number, first: string | Buffer): Socket {
  const socket = connect({ host: '127.0.0.1', port, allowHalfOpen: true });
  socket.on('error', () => {});
  socket.write(first);
  return socket;
}

it('a connection with the token is passed on byte for byte, in both directions, and each side can end first', async () => {
  await using tunnel = await tunnelTo((inside) => void buffer(inside).then((all) => inside.end(all.reverse())));
  const sent = randomBytes(5_000_000);
  const socket = open(tunnel.port, `${tunnel.token}\n`);
  socket.end(sent);
  const received = await buffer(socket);
  expect(received.subarray(0, 1).toString()).toBe('+');
  expect(received.subarray(1).equals(sent.toReversed())).toBe(true);
});

it('a connection without the token reaches nothing', async () => {
  await using tunnel = await tunnelTo((inside) => inside.end('secret'));
  const wrong = [`${'0'.repeat(64)}\n`, `${tunnel.token} \n`, 'GET / HTTP/1.1\r\n'.repeat(10), '\n'.repeat(65)];
  for (const first of wrong) expect((await buffer(open(tunnel.port, first))).toString()).toBe('');
  const short = open(tunnel.port, tunnel.token.slice(0, 10));
  short.end();
  expect((await buffer(short)).toString()).toBe('');
  expect(tunnel.connections()).toBe(0);
});

it('closing the tunnel ends its connections', async () => {
  const tunnel = await tunnelTo((inside) => inside.resume().once('end', () => inside.end()));
  const socket = open(tunnel.port, `${tunnel.token}\n`);
  await once(socket, 'data');
  const closed = once(socket, 'close');
  await tunnel[Symbol.asyncDispose]();
  socket.end();
  await closed;
});
