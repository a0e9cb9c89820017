import { chmod } from 'node:fs/promises';
import { createServer, type Socket } from 'node:net';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { parseJson } from '../../core/json.ts';
import { removeNamed } from './destroy-sandbox.ts';
import { emptySandbox, handOver, type Sandbox } from './empty-sandbox.ts';
import { hostWork } from './errors.ts';
import type { Isolation } from './isolation.ts';
import { listenIn } from './listen-in.ts';

/** The sandbox of a process that serves many trials. */
export type ServerSandbox = {
  sandbox: Sandbox;
  /** Closes the socket and removes the sandbox. The process has ended before. */
  remove: () => Promise<void>;
};

type Options = {
  home: string;
  name: string;
  /** The name of the Unix socket in the sandbox's root over which the process talks with this one, one JSON value a line. */
  socket: string;
  isolation: Isolation;
  /** Adds what the process needs besides the folders of its own. The sandbox's user may pass through the root, and write only to its own folders. */
  prepare: (sandbox: Sandbox) => Promise<void>;
  /** Is called with each line, or null for one that is not JSON. A program of the user sends it, so it must be checked. */
  onMessage: (message: unknown, connection: Socket) => void;
};

/**
 * Makes the sandbox and listens for its process.
 * @throws SandboxError when this host cannot make one
 */
export async function openServerSandbox(options: Options): Promise<ServerSandbox> {
  const { home, name, socket, isolation, prepare, onMessage } = options;
  let stopListening = async () => {};
  const remove = async (): Promise<void> => {
    await stopListening();
    await removeNamed(home, name, { isolation });
  };
  const listener = createServer((connection) => {
    // Programs that the process starts see the socket too, and must not be able to connect.
    void stopListening();
    connection.on('error', () => {});
    const lines = createInterface({ input: connection, crlfDelay: Infinity });
    // It passes on the connection's errors, such as a reset by a process that ended with requests unread.
    lines.on('error', () => {});
    lines.on('line', (line) => onMessage(parseJson(line), connection));
  });
  listener.maxConnections = 1;
  try {
    return await hostWork(`making the sandbox ${name}`, async () => {
      const sandbox = await emptySandbox(home, name, { isolation });
      const { root, uid, work, agentHome, tmp, shm, logs } = sandbox;
      await prepare(sandbox);
      stopListening = await listenIn(listener, root, socket);
      await chmod(join(root, socket), 0o666);
      await chmod(root, 0o711);
      for (const each of [work, agentHome, tmp, shm, logs]) await handOver(each, uid);
      return { sandbox, remove };
    });
  } catch (error) {
    await remove();
    throw error;
  }
}
