import { once } from 'node:events';
import { startGateway } from './node.ts';

export type GatewayOptions = {
  host: string;
  port: number;
  engines: readonly string[];
  databaseUrl: string;
  adminKey?: string | null;
  secret: string;
  tokenIn?: boolean;
  budgetEnd?: 'length' | 'refuse';
  strictModel?: boolean;
  maxCallsInFlight?: number;
  compat?: 'none' | 'verl';
  holdSeconds?: number;
  idleSeconds?: number;
  storeWaitSeconds?: number;
  drainSeconds?: number;
};

/** Runs the gateway until `signal` aborts. Says where it listens on one line of stdout, failures on stderr. */
export async function runGateway(options: GatewayOptions, signal: AbortSignal): Promise<void> {
  const { host, port, engines, databaseUrl, secret, adminKey = null, drainSeconds = 10 } = options;
  const { tokenIn = true, budgetEnd = 'length', strictModel = false, holdSeconds = 20, idleSeconds = 600, storeWaitSeconds = 10 } = options;
  const { maxCallsInFlight = 256, compat = 'none' } = options;
  const gateway = await startGateway({
    host,
    port,
    engines,
    databaseUrl,
    adminKey,
    secret,
    settings: { tokenIn, budgetEnd, strictModel, maxCallsInFlight, compat, holdMs: holdSeconds * 1000, idleMs: idleSeconds * 1000, storeWaitMs: storeWaitSeconds * 1000 },
    log: (line) => console.error(`${new Date().toISOString()} gateway: ${line}`),
    drainMs: drainSeconds * 1000,
  });
  const open = adminKey === null ? '; without an admin key, its session routes are open to this machine' : '';
  console.log(`gateway listening on ${gateway.url}, ${engines.length} engine(s)${open}`);
  if (!signal.aborted) await once(signal, 'abort');
  await gateway.close();
}
