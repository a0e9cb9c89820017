import { openDatabase } from '../../../store/database.ts';
import { registerReplicas } from '../../../store/queries/register-replicas.ts';
import type { NodeGateway, NodeGatewayOptions } from '../../../gateway/runtimes/node/start-gateway.ts';
import {
  DEFAULT_SETTINGS,
  GATEWAY_KEYS,
  GATEWAY_SETTINGS,
  variableOf,
  type GatewaySettings,
} from '../../../gateway/settings.ts';
import { openApp } from '../../../gateway/runtimes/workerd/answer.ts';
import { Isolate } from '../../../gateway/runtimes/workerd/isolate.ts';
import { readEnvironment } from '../../../gateway/runtimes/workerd/settings.ts';
import { startEdge } from './edge.ts';
import { startWorkerd, type Bundle } from './workerd.ts';

/** The beginning of a line in a Worker's log. */
const OWN = /^.*?gateway: /;

/** Starts the gateway in workerd behind a stand-in for Cloudflare's edge, with the options of one on Node. */
export async function startWorkerGateway(
  bundle: Bundle,
  options: NodeGatewayOptions,
): Promise<NodeGateway & { pid: number | undefined }> {
  const {
    engines,
    engineKeys = {},
    databaseUrl,
    adminKey,
    readKey,
    secret,
    settings: changed,
    log = () => {},
  } = options;
  const keys = Object.entries(engineKeys);
  const variables = {
    TRIALGATE_SECRET: secret,
    TRIALGATE_ADMIN_KEY: adminKey ?? '',
    TRIALGATE_READ_KEY: readKey ?? '',
    TRIALGATE_ENGINES: engines.join(','),
    TRIALGATE_ENGINE_KEYS: keys.map(([host], i) => `${host}=ENGINE_KEY_${i}`).join(','),
    ...Object.fromEntries(keys.map(([, key], i) => [`ENGINE_KEY_${i}`, key])),
    ...variablesOf({ ...DEFAULT_SETTINGS, ...changed }),
  };
  await introduce(databaseUrl, engines);
  const { app } = openApp(
    readEnvironment({ ...variables, HYPERDRIVE: { connectionString: databaseUrl } }),
    new Isolate(),
  );
  const worker = await startWorkerd({ bundle, databaseUrl, onLog: (line) => log(line.replace(OWN, '')), variables });
  const edge = await startEdge(Number(new URL(worker.url).port));
  const close = async () => {
    await edge.close();
    await worker.close();
  };
  return { url: edge.url, close, routes: app.routes, pid: worker.pid };
}

/** Returns the Worker's variables. Those in MiB are whole numbers, so a smaller value becomes 1. */
function variablesOf(settings: GatewaySettings): Record<string, string> {
  return Object.fromEntries(
    GATEWAY_KEYS.map((key) => {
      const declared = GATEWAY_SETTINGS[key];
      const value = settings[declared.name];
      if (!('times' in declared) || typeof value !== 'number') return [variableOf(key), String(value)];
      return [
        variableOf(key),
        String(declared.placeholder === 'MB' ? Math.ceil(value / declared.times) : value / declared.times),
      ];
    }),
  );
}

/** Prepares the database as a deployment does (deploy/prepare.ts). */
async function introduce(databaseUrl: string, engines: readonly string[]): Promise<void> {
  const db = openDatabase(databaseUrl, { maxConnections: 1 });
  await registerReplicas(db, engines).finally(() => db.$client.end());
}
