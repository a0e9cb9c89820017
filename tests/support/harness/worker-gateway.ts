import { openDatabase } from '../../../store/database.ts';
import { registerReplicas } from '../../../store/queries/register-replicas.ts';
import { DEFAULT_SETTINGS } from '../../../gateway/deps.ts';
import type { NodeGateway, NodeGatewayOptions } from '../../../gateway/node.ts';
import { openApp } from '../../../gateway/worker/answer.ts';
import { Isolate } from '../../../gateway/worker/isolate.ts';
import { readEnvironment } from '../../../gateway/worker/settings.ts';
import { startEdge } from './edge.ts';
import { startWorkerd, type Bundle } from './workerd.ts';

/** The beginning of a line in a Worker's log. */
const OWN = /^.*?gateway: /;

/** Starts the gateway in workerd behind a stand-in for Cloudflare's edge, with the options of one on Node. */
export async function startWorkerGateway(bundle: Bundle, options: NodeGatewayOptions): Promise<NodeGateway & { pid: number | undefined }> {
  const { engines, databaseUrl, adminKey, secret, settings: changed, log = () => {} } = options;
  const settings = { ...DEFAULT_SETTINGS, ...changed };
  const variables = {
    TRIALGATE_SECRET: secret,
    TRIALGATE_ADMIN_KEY: adminKey ?? '',
    TRIALGATE_ENGINES: engines.join(','),
    TRIALGATE_TOKEN_IN: `${settings.tokenIn}`,
    TRIALGATE_STRICT_MODEL: `${settings.strictModel}`,
    TRIALGATE_BUDGET_END: settings.budgetEnd,
    TRIALGATE_HOLD_SECONDS: `${settings.holdMs / 1000}`,
    TRIALGATE_IDLE_SECONDS: `${settings.idleMs / 1000}`,
    TRIALGATE_STORE_WAIT_SECONDS: `${settings.storeWaitMs / 1000}`,
    TRIALGATE_KEEP_ALIVE_SECONDS: `${settings.keepAliveMs / 1000}`,
    TRIALGATE_MAX_CALLS_IN_FLIGHT: `${settings.maxCallsInFlight}`,
    TRIALGATE_COMPAT: settings.compat,
    TRIALGATE_MAX_BODY_BYTES: `${settings.maxBodyBytes}`,
    TRIALGATE_MAX_BODY_NODES: `${settings.maxBodyNodes}`,
    TRIALGATE_MAX_BODY_BYTES_IN_FLIGHT: `${settings.maxBodyBytesInFlight}`,
    TRIALGATE_MAX_BODY_DEPTH: `${settings.maxBodyDepth}`,
  };
  await introduce(databaseUrl, engines);
  const { app } = openApp(readEnvironment({ ...variables, HYPERDRIVE: { connectionString: databaseUrl } }), new Isolate());
  const worker = await startWorkerd({ bundle, databaseUrl, onLog: (line) => log(line.replace(OWN, '')), variables });
  const edge = await startEdge(Number(new URL(worker.url).port));
  const close = async () => {
    await edge.close();
    await worker.close();
  };
  return { url: edge.url, close, routes: app.routes, pid: worker.pid };
}

/** Prepares the database as a deployment does (deploy/prepare.ts). */
async function introduce(databaseUrl: string, engines: readonly string[]): Promise<void> {
  const db = openDatabase(databaseUrl, { maxConnections: 1 });
  await registerReplicas(db, engines).finally(() => db.$client.end());
}
