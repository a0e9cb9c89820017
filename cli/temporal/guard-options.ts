import { connect, type NetConnectOpts, type Socket } from 'node:net';
import { z } from 'zod';

/** A port of Temporal, and the Unix socket that connects this machine's network with Temporal's network. */
export const forwardedPort = z.object({ port: z.int(), socket: z.string() });
export type ForwardedPort = z.output<typeof forwardedPort>;

/** The guard's settings, as JSON in its first argument. */
export const guardOptions = z.object({
  bwrap: z.string(),
  ports: z.array(forwardedPort),
  file: z.string(),
  args: z.array(z.string()),
});
export type GuardOptions = z.output<typeof guardOptions>;

/** Connects a connection to another address, byte for byte, until either side ends. */
export function forward(from: Socket, to: NetConnectOpts): void {
  const other = connect({ ...to, allowHalfOpen: true });
  const end = (): void => {
    from.destroy();
    other.destroy();
  };
  from.on('error', end);
  other.on('error', end);
  from.once('close', (hadError) => hadError && other.destroy());
  from.pipe(other).pipe(from);
}
