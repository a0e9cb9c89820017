import { spawn } from 'node:child_process';
import { createHash, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { connect, createServer, type Socket } from 'node:net';
import { join } from 'node:path';
import { buffer } from 'node:stream/consumers';
import { expect, it, vi } from 'vitest';
import { temporaryHome } from '../../../tests/support/harness/sandbox-fixtures.ts';
import { listenIn } from '../listen-in.ts';
import type { Channel } from './channel.ts';
import { copyIntoPod, helperCommand } from './files.ts';
import { serveTunnel } from './tunnel.ts';

async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  server.close();
  return typeof address === 'object' && address !== null ? address.port : 0;
}

/** Runs the helper of a pod on this host, joined to a server. The folder `given` is copied to where its volume would be. */
async function helped({ serve = () => {}, storageMb = 64 }: { serve?: (socket: Socket) => void; storageMb?: number }) {
  await using stack = new AsyncDisposableStack();
  const { home } = stack.use(await temporaryHome());
  const [given, volume] = [join(home, 'given'), join(home, 'volume')];
  for (const folder of [given, volume]) await mkdir(folder);
  await writeFile(join(given, '-rf'), 'a file');
  const sockets = new Set<Socket>();
  const server = createServer({ allowHalfOpen: true }, (socket) => {
    sockets.add(socket.on('error', () => {}));
    serve(socket);
  });
  stack.defer(await listenIn(server, home, 'gateway.sock'));
  stack.defer(() => sockets.forEach((socket) => socket.destroy()));
  const port = await freePort();
  const folders = [{ name: 'volume', host: given, inside: '/unused', writable: true }];
  const [command = '', ...args] = helperCommand(folders, storageMb, [port]).map((each) =>
    each === '/sandbox/volume' ? volume : each,
  );
  const child = spawn(command, args, { env: { PATH: process.env.PATH } });
  const exited = once(child, 'exit');
  const channel: Channel = {
    stdout: child.stdout,
    stderr: child.stderr,
    write: (data) =>
      new Promise((resolve, reject) => child.stdin.write(data, (error) => (error ? reject(error) : resolve()))),
    ended: exited.then(([code]) => code),
    close: () => child.kill('SIGKILL'),
  };
  child.stdin.on('error', () => {});
  stack.defer(async () => {
    channel.close();
    await exited;
  });
  await copyIntoPod(channel, folders, new AbortController().signal);
  const notes: string[] = [];
  const noted = Promise.withResolvers<void>();
  const next = { current: noted };
  const serving = serveTunnel(channel, [join(home, 'gateway.sock')], (note) => {
    if (note.startsWith('disk ')) return;
    notes.push(note);
    next.current.resolve();
  });
  // A helper that ends at once, because another process took its port, tells nothing.
  await Promise.race([
    noted.promise,
    exited.then(([code]) => Promise.reject(new Error(`the helper ended with ${code}`))),
  ]);
  next.current = Promise.withResolvers<void>();
  const moved = stack.move();
  return {
    ...{ port, volume, notes, channel, serving, child },
    nextNote: () => next.current.promise,
    [Symbol.asyncDispose]: () => moved.disposeAsync(),
  };
}

const open = (port: number): Socket => connect({ host: '127.0.0.1', port, allowHalfOpen: true }).on('error', () => {});

it('connections of a pod reach the worker’s socket byte for byte, at the same time, and each side can end first', async () => {
  await using helper = await helped({
    serve: (socket) => void buffer(socket).then((all) => socket.end(createHash('sha256').update(all).digest('hex'))),
  });
  // The address of a cluster's API is a pod's alone.
  expect(helper.notes).toEqual(['unchecked']);
  const answers = Array.from({ length: 24 }, async (_, index) => {
    const sent = randomBytes(index === 0 ? 4_000_000 : 50_000);
    const socket = open(helper.port);
    socket.end(sent);
    return [(await buffer(socket)).toString(), createHash('sha256').update(sent).digest('hex')];
  });
  for (const [received, expected] of await Promise.all(answers)) expect(received).toBe(expected);
});

it('a connection that reads nothing does not hold up the others', async () => {
  await using helper = await helped({ serve: (socket) => socket.end(randomBytes(3_000_000)) });
  const idle = open(helper.port).pause();
  await once(idle, 'connect');
  expect(await buffer(open(helper.port))).toHaveLength(3_000_000);
  idle.destroy();
});

it('a server that reads nothing of many connections holds up none that is read', async () => {
  let isRead = false;
  const unread: Socket[] = [];
  await using helper = await helped({
    serve: (socket) => {
      if (isRead) void buffer(socket).then((all) => socket.end(`${all.length}`));
      else unread.push(socket.pause());
    },
  });
  // The tunnel itself has opened one, to try the socket.
  const before = unread.length;
  const idle = Array.from({ length: 4 }, () => open(helper.port));
  for (const each of idle) each.write(Buffer.alloc(5_000_000));
  await vi.waitFor(() => expect(unread).toHaveLength(before + 4), { timeout: 60_000, interval: 10 });
  isRead = true;
  const socket = open(helper.port);
  socket.end(Buffer.alloc(3_000_000));
  expect((await buffer(socket)).toString()).toBe('3000000');
  idle.forEach((each) => each.destroy());
});

it('a server that breaks off a connection breaks it off in the pod', async () => {
  await using helper = await helped({ serve: (socket) => socket.destroy() });
  const socket = open(helper.port);
  expect(await buffer(socket)).toHaveLength(0);
});

it('files reach the pod under any name, and what is written there beyond the limit is told', async () => {
  await using helper = await helped({ storageMb: 1 });
  expect(await readFile(join(helper.volume, '-rf'), 'utf8')).toBe('a file');
  await writeFile(join(helper.volume, 'big'), randomBytes(2 ** 21));
  await helper.nextNote();
  expect(helper.notes).toEqual(['unchecked', 'storage']);
});

it('the helper ends when its connection does', async () => {
  await using helper = await helped({});
  helper.child.stdin.end();
  await helper.serving;
  expect(await helper.channel.ended).toBe(0);
});
