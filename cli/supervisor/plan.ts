import { createHash } from 'node:crypto';
import os from 'node:os';
import path from 'node:path';
import type { ResolvedConfig } from '../config/resolve.ts';
import { hasOwnEngine, type Deployment } from '../config/schema.ts';
import { secretsOf } from '../config/secrets.ts';
import { homeFolders } from '../folders.ts';
import { makePrivate } from '../private-folder.ts';
import { reachableAt } from '../../core/reachable-at.ts';
import { gpuSharesOf, shareNote, type GpuShares } from './gpus.ts';
import { gatewayPorts, LOOPBACK, type OwnGateway } from './gateways.ts';
import { HeldPorts, ownPorts } from './ports.ts';
import { readState } from './state.ts';

/** Everything that the components need for one start, with chosen ports and secrets. */
export type Plan = {
  config: Deployment;
  folders: ReturnType<typeof homeFolders>;
  /** The port of each component. */
  ports: { postgres: number; temporal: number; [gateway: string]: number };
  /** Holds the chosen ports until their components start. */
  held: HeldPorts;
  postgresPassword: string;
  adminKey: string;
  secret: string;
  databaseUrl: string;
  temporalAddress: string;
  gateways: OwnGateway[];
  /** The gateways that agents get: our own, or those that the configuration names. */
  gatewayUrls: string[];
  /** The socket of our own vLLM. */
  engineSocket: string;
  engines: string[];
  /** Null where the deployment uses no GPU. */
  gpus: GpuShares | null;
  /** What people should know of the choices, a sentence each. */
  notes: string[];
};

/** Makes the plan of one start. A port whose default nobody changed (`origins`) may be another one, if the default is taken. */
export async function makePlan(config: Deployment, origins: ResolvedConfig['origins'] = {}): Promise<Plan> {
  const folders = homeFolders(config.home);
  makePrivate(folders.home);
  const secrets = secretsOf(config.home);
  const kept = readState(config.home)?.ports ?? {};
  const held = new HeldPorts();
  const ports: Plan['ports'] = { postgres: config.postgres_port, temporal: config.temporal_port };
  const notes: string[] = [];
  for (const { name, who, wanted, host, isDefault } of ownPorts(config, origins)) {
    const port = await held.choose(wanted, kept[name], host, isDefault);
    if (wanted !== 0 && port !== wanted) notes.push(`port ${wanted} is taken, so ${who} listens on ${port}`);
    ports[name] = port;
  }
  const gateways = gatewayPorts(config).map(({ name, wanted }): OwnGateway => {
    const port = ports[name] ?? wanted;
    return { name, port, url: reachableAt(config.gateway_host, port) };
  });
  const gpus = gpuSharesOf(config);
  const note = shareNote(gpus, config.engine_args);
  if (note !== null) notes.push(note);
  const engineSocket = path.join(socketFolder(config.home), 'engine.sock');
  return {
    config,
    folders,
    ports,
    held,
    postgresPassword: secrets.postgres_password,
    adminKey: config.admin_key ?? secrets.admin_key,
    secret: config.secret ?? secrets.secret,
    databaseUrl:
      config.database_url ??
      `postgres://trialgate:${secrets.postgres_password}@${LOOPBACK}:${ports.postgres}/trialgate`,
    temporalAddress: config.temporal_address ?? `${LOOPBACK}:${ports.temporal}`,
    gateways,
    gatewayUrls: config.gateway_url ?? gateways.map(({ url }) => url),
    engineSocket,
    gpus,
    engines: hasOwnEngine(config) ? [`unix:${engineSocket}`] : config.engines,
    notes,
  };
}

/** Returns the folder of the deployment's sockets. */
export const socketFolder = (home: string): string => folderForSockets(home, 'supervisor.sock');

/** Returns the folder for temporary files of the deployment's vLLM. Its processes talk over sockets there, whose names are UUIDs. */
export const vllmTemporaryFolder = (home: string): string =>
  path.join(folderForSockets(home, `vllm/${'-'.repeat(36)}`), 'vllm');

/** Linux limits a socket's path to 107 bytes, so a long home has its sockets in the temporary folder. */
function folderForSockets(home: string, longestName: string): string {
  const folder = homeFolders(home).run;
  if (Buffer.byteLength(path.join(folder, longestName)) <= 107) return folder;
  const digest = createHash('sha256').update(home).digest('hex').slice(0, 16);
  return path.join(os.tmpdir(), `trialgate-${digest}`);
}
