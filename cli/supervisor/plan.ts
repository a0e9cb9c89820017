import { createHash } from 'node:crypto';
import { mkdirSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import type { Deployment } from '../config/schema.ts';
import { secretsOf } from '../config/secrets.ts';
import { homeFolders } from '../folders.ts';
import { HeldPorts } from './ports.ts';
import { readState } from './state.ts';

/** Everything that the components of one start need to know: ports chosen, secrets there. */
export type Plan = {
  config: Deployment;
  folders: ReturnType<typeof homeFolders>;
  ports: { postgres: number; temporal: number; gateway: number };
  /** What was chosen here stays ours until its component starts. */
  held: HeldPorts;
  postgresPassword: string;
  adminKey: string;
  secret: string;
  databaseUrl: string;
  temporalAddress: string;
  /** Our own gateway's address, or the first that the configuration names. */
  gatewayUrl: string;
  /** Those that agents may be given. */
  gatewayUrls: string[];
  /** Our own vLLM's socket. */
  engineSocket: string;
  engines: string[];
};

export const LOOPBACK = '127.0.0.1';

export async function makePlan(config: Deployment): Promise<Plan> {
  const folders = homeFolders(config.home);
  mkdirSync(folders.home, { recursive: true });
  const secrets = secretsOf(config.home);
  const kept = readState(config.home)?.ports ?? {};
  const held = new HeldPorts();
  const ports = {
    postgres: await held.choose(config.postgres_port, kept['postgres'], LOOPBACK),
    temporal: await held.choose(config.temporal_port, kept['temporal'], LOOPBACK),
    gateway: await held.choose(config.gateway_port, kept['gateway'], config.gateway_host),
  };
  const engineSocket = path.join(socketFolder(config.home), 'engine.sock');
  const reachable = ['0.0.0.0', '::'].includes(config.gateway_host) ? LOOPBACK : config.gateway_host;
  const ownGateway = `http://${reachable.includes(':') ? `[${reachable}]` : reachable}:${ports.gateway}`;
  return {
    config,
    folders,
    ports,
    held,
    postgresPassword: secrets.postgres_password,
    adminKey: config.admin_key ?? secrets.admin_key,
    secret: config.secret ?? secrets.secret,
    databaseUrl:
      config.database_url ?? `postgres://trialgate:${secrets.postgres_password}@${LOOPBACK}:${ports.postgres}/trialgate`,
    temporalAddress: config.temporal_address ?? `${LOOPBACK}:${ports.temporal}`,
    gatewayUrl: config.gateway_url?.[0] ?? ownGateway,
    gatewayUrls: config.gateway_url ?? [ownGateway],
    engineSocket,
    engines: config.engines.length ? config.engines : [`unix:${engineSocket}`],
  };
}

/** Linux cuts a socket's path at 107 bytes: a deployment deep in the tree has its sockets in the temp folder. */
export function socketFolder(home: string): string {
  const folder = homeFolders(home).run;
  if (Buffer.byteLength(path.join(folder, 'engine.sock')) <= 107) return folder;
  const digest = createHash('sha256').update(home).digest('hex').slice(0, 16);
  return path.join(os.tmpdir(), `trialgate-${digest}`);
}
