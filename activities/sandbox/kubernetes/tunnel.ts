import { open } from 'node:fs/promises';
import { connect, type Socket } from 'node:net';
import { basename, dirname } from 'node:path';
import { once } from 'node:events';
import { SandboxError } from '../errors.ts';
import type { Channel } from './channel.ts';

/**
 * Each side sends so many bytes of a connection before the other side says that they are read, so that a connection that is not read holds up no
 * other. `helper.py` has the same number.
 */
export const WINDOW_BYTES = 2 ** 18;
const HEAD_BYTES = 9;
type Kind = 'O' | 'D' | 'A' | 'E' | 'R' | 'N';
type Connection = { socket: Socket; window: Window };
type Frame = { kind: string; connection: number; data: Buffer };

/**
 * Joins the connections that `helper.py` accepts in a pod to sockets of this host, in the order of the helper's ports, until the channel
 * ends. Calls `onNote` with what the helper says.
 */
export async function serveTunnel(channel: Channel, sockets: string[], onNote: (note: string) => void): Promise<void> {
  const connections = new Map<number, Connection>();
  const send = (kind: Kind, connection: number, data: Buffer = Buffer.alloc(0)): Promise<void> =>
    channel.write(frameOf(kind, connection, data));
  const confirm = (connection: number, bytes: number): void => {
    void send('A', connection, numberOf(bytes)).catch(() => {});
  };
  const openConnection = async (number: number, path: string | undefined): Promise<void> => {
    if (path === undefined) return;
    const connection = { socket: await connected(path), window: new Window() };
    connections.set(number, connection);
    connection.socket.once('close', () => connection.window.close());
    void pass(connection, number);
  };
  const pass = async ({ socket, window }: Connection, number: number): Promise<void> => {
    try {
      for await (const chunk of socket)
        if (Buffer.isBuffer(chunk))
          for (let sent = 0; sent < chunk.length;) {
            const count = await window.take(chunk.length - sent);
            await send('D', number, chunk.subarray(sent, sent + count));
            sent += count;
          }
      await send('E', number);
    } catch {
      await send('R', number).catch(() => {});
    }
    connections.delete(number);
  };
  try {
    // The host takes the first connection as the sign that the relay works.
    for (const path of sockets) (await connected(path)).destroy();
    for await (const { kind, connection, data } of frames(channel)) {
      const { socket, window } = connections.get(connection) ?? {};
      if (kind === 'N') onNote(data.toString());
      else if (kind === 'O') await openConnection(connection, sockets[data[0] ?? -1]);
      else if (kind === 'D')
        socket?.write(data, (error) => {
          if (!error) confirm(connection, data.length);
        });
      else if (kind === 'A') window?.add(data.readUInt32BE());
      else if (kind === 'E') socket?.end();
      else if (kind === 'R') socket?.destroy();
    }
  } finally {
    connections.forEach(({ socket }) => socket.destroy());
  }
}

/** The bytes of a connection that may be sent now. */
class Window {
  #left = WINDOW_BYTES;
  #isClosed = false;
  #wake: (() => void) | null = null;

  /** Waits until some bytes may be sent, and returns their number, which is at most `wanted`. Rejects when the connection is closed. */
  async take(wanted: number): Promise<number> {
    while (this.#left === 0 && !this.#isClosed) await new Promise<void>((resolve) => (this.#wake = resolve));
    if (this.#isClosed) throw new Error('the connection is closed');
    const count = Math.min(this.#left, wanted);
    this.#left -= count;
    return count;
  }

  add(count: number): void {
    this.#left += count;
    this.#wake?.();
  }

  close(): void {
    this.#isClosed = true;
    this.#wake?.();
  }
}

function numberOf(value: number): Buffer {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32BE(value);
  return bytes;
}

async function connected(path: string): Promise<Socket> {
  await using folder = await open(dirname(path));
  // Linux limits a socket's path to 107 bytes, and a deployment's folder may be deep.
  const socket = connect({ path: `/proc/self/fd/${folder.fd}/${basename(path)}`, allowHalfOpen: true });
  socket.on('error', () => {});
  await Promise.race([once(socket, 'connect'), once(socket, 'close')]).catch(() => {});
  return socket;
}

function frameOf(kind: Kind, connection: number, data: Buffer): Buffer {
  const head = Buffer.alloc(HEAD_BYTES);
  head.write(kind, 'latin1');
  head.writeUInt32BE(connection, 1);
  head.writeUInt32BE(data.length, 5);
  return Buffer.concat([head, data]);
}

async function* frames({ stdout }: Channel): AsyncGenerator<Frame> {
  let rest: Buffer = Buffer.alloc(0);
  for await (const chunk of stdout) {
    if (!Buffer.isBuffer(chunk)) throw new SandboxError('a stream of bytes was expected');
    rest = Buffer.concat([rest, chunk]);
    for (let length = lengthOf(rest); length !== null; length = lengthOf(rest)) {
      yield {
        kind: rest.toString('latin1', 0, 1),
        connection: rest.readUInt32BE(1),
        data: rest.subarray(HEAD_BYTES, length),
      };
      rest = rest.subarray(length);
    }
  }
}

/** Returns the length of the first frame; null while a part of it is missing. */
function lengthOf(bytes: Buffer): number | null {
  if (bytes.length < HEAD_BYTES) return null;
  const length = HEAD_BYTES + bytes.readUInt32BE(5);
  return bytes.length < length ? null : length;
}
