import { inject } from 'vitest';
import { DEFAULT_SETTINGS } from '../deps.ts';
import type { NodeGateway, NodeGatewayOptions } from '../node.ts';
import { openApp } from '../worker/answer.ts';
import { Isolate } from '../worker/isolate.ts';
import { readEnvironment } from '../worker/settings.ts';
import { startEdge } from './edge.ts';
import { startWorkerd } from './workerd.ts';
import './workerd-setup.ts';

/** What stands in front of a line of a Worker's log. */
const OWN = /^.*?gateway: /;

/** The gateway in workerd, behind what stands for Cloudflare's edge, with the options of one on Node. */
export async function startWorkerGateway({ engines, databaseUrl, adminKey, secret, settings: changed, log = () => {} }: NodeGatewayOptions): Promise<NodeGateway> {
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
  };
  const { app } = openApp(readEnvironment({ ...variables, HYPERDRIVE: { connectionString: databaseUrl } }), new Isolate());
  const worker = await startWorkerd({ bundle: inject('workerBundle'), databaseUrl, onLog: (line) => log(line.replace(OWN, '')), variables });
  const edge = await startEdge(Number(new URL(worker.url).port));
  const close = async () => {
    await edge.close();
    await worker.close();
  };
  return { url: edge.url, close, routes: app.routes };
}
