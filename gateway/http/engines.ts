import { Hono } from 'hono';
import { isRelayed } from '../../core/engine-url.ts';
import { readEngine, readEngines } from '../../store/queries/read-engines.ts';
import { drainByHand, joinByHand, leaveByHand } from '../../store/queries/register-replicas.ts';
import { DEPLOYMENT_POOL, type FoundBy } from '../../store/schema.ts';
import { addLoads } from '../calls/counters.ts';
import { check } from '../check.ts';
import type { ReplicaRow } from '../engines/pool.ts';
import { Failure } from '../failure.ts';
import { parseBody } from '../json.ts';
import { withStoreRetry } from '../with-store-retry.ts';
import { requireAdmin } from './auth.ts';
import { readBody } from './bodies/read-body.ts';
import type { GatewayDeps, GatewayEnv } from './deps.ts';
import { engineChange, type Engine } from './openapi/schemas.ts';

/** The body holds one URL. */
const MAX_BYTES = 4096;

/** Lists the engines, and lets a person join one to the deployment's, drain one or remove one. */
export function engineRoutes(deps: GatewayDeps): Hono<GatewayEnv> {
  const app = new Hono<GatewayEnv>();
  const { db } = deps;
  const list = async () => {
    const rows = await withStoreRetry(deps, () => readEngines(db));
    return { engines: engineList(rows, await callsByEngine(deps)) };
  };
  app.use('/engines', async (c, next) => {
    requireAdmin(deps, c.req.raw.headers);
    await next();
  });
  app.get('/engines', async (c) => c.json(await list()));
  app.post('/engines', async (c) => {
    const { bytes } = await readBody(c.req.raw, { ...deps.settings, maxBodyBytes: MAX_BYTES });
    const { url, change } = check(engineChange, parseBody(bytes));
    const row = await withStoreRetry(deps, () => readEngine(db, url));
    requireChangeable(row, url, change);
    await withStoreRetry(deps, () => CHANGES[change](db, url));
    return c.json(await list());
  });
  return app;
}

const CHANGES = { join: joinByHand, drain: drainByHand, leave: leaveByHand };

/** Says for each source how a person has an engine leave that it names. */
const NAMED_IN: Record<Exclude<FoundBy, 'hand'>, string> = {
  list: 'the list of `--engine` names it: start the gateways without it, or drain it',
  file: 'the file of `--engines-file` names it: remove it there, or drain it',
  kubernetes: 'a pod in Kubernetes has it: delete that pod or its label, or drain the engine',
};

function requireChangeable(row: ReplicaRow | null, url: string, change: keyof typeof CHANGES): void {
  if (row && row.pool !== DEPLOYMENT_POOL)
    throw refused(`engine ${url} belongs to run ${row.pool}, whose run file names it: only that run decides about it`);
  const foundBy = row?.foundBy ?? 'nobody';
  if (change === 'join' && (foundBy !== 'nobody' || !isRelayed(url))) return;
  if (change === 'join') throw refused(`engine ${url} joins when its relay worker dials the gateway`);
  if (foundBy === 'nobody')
    throw new Failure(
      404,
      'not_found',
      `the deployment has no engine ${url}: \`npx trialgate engine list\` lists them`,
      {
        retryable: false,
      },
    );
  if (change === 'drain' || foundBy === 'hand') return;
  throw refused(
    isRelayed(url)
      ? `engine ${url} leaves when its relay worker ends: stop that worker, or drain the engine`
      : `engine ${url} stays, because ${NAMED_IN[foundBy]}`,
  );
}

const refused = (message: string) => new Failure(409, 'engine_not_changed', message, { retryable: false });

async function callsByEngine({ engines, otherThread }: GatewayDeps): Promise<Map<string, number>> {
  const other = await otherThread?.();
  const loads = other ? addLoads(engines.loads, other.engines) : engines.loads;
  return new Map(loads.map(({ engine, inFlight }) => [engine, inFlight]));
}

function foundByOf({ pool, foundBy }: ReplicaRow): Engine['found_by'] {
  if (pool !== DEPLOYMENT_POOL) return 'run';
  return foundBy === 'nobody' ? null : foundBy;
}

function stateOf({ foundBy, draining, drainedByHand }: ReplicaRow): Engine['state'] {
  if (foundBy === 'nobody') return 'left';
  return draining || drainedByHand ? 'draining' : 'serving';
}

/** Lists the replicas, and those that left while calls of this process are under way there. */
function engineList(rows: readonly ReplicaRow[], calls: ReadonlyMap<string, number>): Engine[] {
  const known = new Set(rows.map(({ url }) => url));
  const left = [...calls].filter(([url, count]) => count > 0 && !known.has(url));
  return [
    ...rows.map((row) => ({
      url: row.url,
      found_by: foundByOf(row),
      state: stateOf(row),
      drained_by_hand: row.drainedByHand,
      run_id: row.runId,
      weight_version: row.weightVersion,
      in_rotation: row.inRotation,
      calls_in_flight: calls.get(row.url) ?? 0,
    })),
    ...left.map(([url, count]) => ({
      url,
      found_by: null,
      state: 'left' as const,
      drained_by_hand: false,
      run_id: null,
      weight_version: null,
      in_rotation: false,
      calls_in_flight: count,
    })),
  ];
}
