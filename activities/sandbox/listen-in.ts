import { once } from 'node:events';
import { open, rm } from 'node:fs/promises';
import type { Server } from 'node:net';
import { join } from 'node:path';

/**
 * Listens on a Unix socket in a folder. Linux limits a socket's path to 107 bytes and a deployment's folder may be deep, so this listens
 * through the folder's descriptor. Returns a function that stops: nobody can connect from then on, and it resolves when all connections have ended.
 */
export async function listenIn(server: Server, folder: string, name: string): Promise<() => Promise<void>> {
  await rm(join(folder, name), { force: true });
  const handle = await open(folder);
  try {
    server.listen(`/proc/self/fd/${handle.fd}/${name}`);
    await once(server, 'listening');
  } catch (error) {
    await handle.close();
    throw error;
  }
  let stopped: Promise<void> | null = null;
  const stop = async (): Promise<void> => {
    const closed = once(server, 'close');
    server.close();
    await closed;
    // Closing the server removes the socket through the descriptor's path, so the descriptor must stay open until then.
    await handle.close();
  };
  return () => (stopped ??= stop());
}
