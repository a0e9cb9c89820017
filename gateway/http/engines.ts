import { Hono } from 'hono';
import { isRelayed } from '../../core/engine-url.ts';
import { readEngine, readEngines } from '../../store/queries/read-engines.ts';
import { drainByHand, joinByHand, leaveByHand } from '../../store/queries/register-replicas.ts';
import { DEPLOYMENT_POOL, type FoundBy } from '../../store/schema.ts';
import { check } from '../check.ts';
import type { ReplicaRow } from '../engines/pool.ts';
import { Failure } from '../failure.ts';
import { parseBody } from '../json.ts';
import { withStoreRetry } from '../with-store-retry.ts';
import { requireReader } from './auth.ts';
import { readBody } from './bodies/read-body.ts';
import type { GatewayDeps, GatewayEnv } from './deps.ts';
import { callsIn, engineList, loadsOf } from './engine-list.ts';
import { engineChange } from './openapi/schemas.ts';

/** The body holds one URL. */
const MAX_BYTES = 4096;

/** Lists the engines, and lets a person join one to the deployment's, drain one or remove one. */
export function engineRoutes(deps: GatewayDeps): Hono<GatewayEnv> {
  const app = new Hono<GatewayEnv>();
  const { db } = deps;
  const list = async () => {
    const rows = await withStoreRetry(deps, () => readEngines(db));
    return { engines: engineList(rows, callsIn(loadsOf(deps, await deps.otherThread?.()))) };
  };
  app.use('/engines', async (c, next) => {
    requireReader(deps, c.req.raw);
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
