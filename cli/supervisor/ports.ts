import { randomInt } from 'node:crypto';
import { createServer } from 'node:net';
import { TrialgateError } from '../../store/errors.ts';
import { flagOf, variableOf, type SettingKey } from '../config/settings.ts';

export async function isFree(port: number, host: string): Promise<boolean> {
  const server = createServer();
  const free = await new Promise<boolean>((resolve) => {
    server.once('error', () => resolve(false));
    server.listen({ port, host, exclusive: true }, () => resolve(true));
  });
  if (free) await new Promise((resolve) => server.close(resolve));
  return free;
}

/** A free port below the range that the kernel hands to outgoing connections: one of those could take it during a restart. */
export async function freePort(host: string): Promise<number> {
  for (let tries = 0; tries < 100; tries++) {
    const port = randomInt(20_000, 32_000);
    if (await isFree(port, host)) return port;
  }
  throw new TrialgateError('missing_prerequisite', `no free port on ${host} between 20000 and 32000`);
}

/** The port to use: the one asked for, or for 0 the one kept from before, or a free one. */
export async function choosePort(wanted: number, kept: number | undefined, host: string): Promise<number> {
  if (wanted !== 0) return wanted;
  return kept !== undefined && (await isFree(kept, host)) ? kept : freePort(host);
}

/** @throws TrialgateError naming the port, who needs it and how to choose another. */
export async function requireFree(port: number, host: string, who: string, key: SettingKey): Promise<void> {
  if (await isFree(port, host)) return;
  throw new TrialgateError(
    'missing_prerequisite',
    `port ${port} on ${host}, which ${who} needs, is taken or may not be used. Stop what listens there, or choose another port: ` +
      `${flagOf(key)} N, \`${key}: N\` in trialgate.yaml or ${variableOf(key)}=N (0: any free one)`,
  );
}
