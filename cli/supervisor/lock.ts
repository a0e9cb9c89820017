import { createHash } from 'node:crypto';
import { createServer } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { TrialgateError } from '../../store/errors.ts';

/** A lock that the kernel gives back when its holder dies, however it dies. */
export type Lock = { release(): Promise<void> };

/** One name a deployment and purpose. An abstract socket needs no file and leaves none behind. */
export async function takeLock(home: string, purpose: string): Promise<Lock | null> {
  const digest = createHash('sha256').update(home).digest('hex').slice(0, 24);
  const server = createServer((socket) => socket.destroy());
  const taken = await new Promise<boolean>((resolve, reject) => {
    server.once('error', (error: NodeJS.ErrnoException) => (error.code === 'EADDRINUSE' ? resolve(true) : reject(error)));
    server.listen(`\0trialgate-${purpose}-${digest}`, () => resolve(false));
  });
  if (taken) return null;
  server.unref();
  return { release: () => new Promise((resolve) => server.close(() => resolve())) };
}

/** The same, once whoever has it is done; `onWait` is called while that lasts. */
export async function awaitLock(home: string, purpose: string, signal: AbortSignal, onWait = (): void => {}): Promise<Lock> {
  for (;;) {
    const lock = await takeLock(home, purpose);
    if (lock) return lock;
    onWait();
    await sleep(500, undefined, { signal });
  }
}

/** @throws TrialgateError when another supervisor of this deployment lives. */
export async function lockDeployment(home: string): Promise<Lock> {
  const lock = await takeLock(home, 'supervisor');
  if (lock) return lock;
  throw new TrialgateError('pool_busy', `Trialgate is already up in ${home}: \`trialgate status\` shows it, \`trialgate down\` stops it`);
}
