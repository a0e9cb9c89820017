import { createHash } from 'node:crypto';
import { createServer } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { TrialgateError } from '../../core/errors.ts';

/** A lock that the kernel releases when its holder dies, in whatever way. */
export type Lock = { release(): Promise<void> };

/** Takes the lock of a deployment and purpose, or returns null if another process has it. It is an abstract socket, which needs no file. */
export async function takeLock(home: string, purpose: string): Promise<Lock | null> {
  const digest = createHash('sha256').update(home).digest('hex').slice(0, 24);
  const server = createServer((socket) => socket.destroy());
  const taken = await new Promise<boolean>((resolve, reject) => {
    server.once('error', (error: NodeJS.ErrnoException) =>
      error.code === 'EADDRINUSE' ? resolve(true) : reject(error),
    );
    server.listen(`\0trialgate-${purpose}-${digest}`, () => resolve(false));
  });
  if (taken) return null;
  server.unref();
  return { release: () => new Promise((resolve) => server.close(() => resolve())) };
}

/** Waits for the lock and takes it. Calls `onWait` at each unsuccessful try. */
export async function awaitLock(
  home: string,
  purpose: string,
  signal: AbortSignal,
  onWait = (): void => {},
): Promise<Lock> {
  for (;;) {
    const lock = await takeLock(home, purpose);
    if (lock) return lock;
    onWait();
    await sleep(500, undefined, { signal });
  }
}

/** Takes the supervisor's lock. @throws TrialgateError when another supervisor of this deployment lives. */
export async function lockDeployment(home: string): Promise<Lock> {
  const lock = await takeLock(home, 'supervisor');
  if (lock) return lock;
  throw new TrialgateError(
    'pool_busy',
    `Trialgate is already up in ${home}: \`trialgate status\` shows it, \`trialgate down\` stops it`,
  );
}
