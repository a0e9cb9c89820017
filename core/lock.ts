import { createHash } from 'node:crypto';
import { createServer } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';

/** A lock that the kernel releases when its holder dies, in whatever way. */
export type Lock = { release(): Promise<void> };

/** Returns the name of a lock's abstract socket, as /proc/net/unix has it after an `@`. */
export function lockSocket(folder: string, purpose: string): string {
  const digest = createHash('sha256').update(folder).digest('hex').slice(0, 24);
  return `trialgate-${purpose}-${digest}`;
}

/** Takes the lock of a folder and purpose, or returns null if another process has it. It is an abstract socket, which needs no file. */
export async function takeLock(folder: string, purpose: string): Promise<Lock | null> {
  const server = createServer((socket) => socket.destroy());
  const taken = await new Promise<boolean>((resolve, reject) => {
    server.once('error', (error: NodeJS.ErrnoException) =>
      error.code === 'EADDRINUSE' ? resolve(true) : reject(error),
    );
    server.listen(`\0${lockSocket(folder, purpose)}`, () => resolve(false));
  });
  if (taken) return null;
  server.unref();
  return { release: () => new Promise((resolve) => server.close(() => resolve())) };
}

/** Waits for the lock and takes it. Calls `onWait` at each unsuccessful try. */
export async function awaitLock(
  folder: string,
  purpose: string,
  signal: AbortSignal,
  onWait = (): void => {},
): Promise<Lock> {
  for (;;) {
    const lock = await takeLock(folder, purpose);
    if (lock) return lock;
    onWait();
    await sleep(500, undefined, { signal });
  }
}
