import { Hono } from 'hono';
import { epochSeconds } from '../../core/epoch-seconds.ts';
import { readDeployment, type DeploymentEngine } from '../../store/queries/read-deployment.ts';
import { requireReader } from './auth.ts';
import type { GatewayDeps, GatewayEnv } from './deps.ts';
import { callsIn, engineList, loadsOf } from './engine-list.ts';
import type { DeploymentEngineReply, DeploymentReply } from './openapi/deployment-schemas.ts';
import type { Engine } from './openapi/schemas.ts';
import type { ReplicaLoad } from '../engines/pool.ts';
import { readForPage } from './read-for-page.ts';

/** Reads the state of the engines and the work under way: what the record has of them, and what this process knows. */
export function deploymentRoutes(deps: GatewayDeps): Hono<GatewayEnv> {
  const app = new Hono<GatewayEnv>();
  app.get('/deployment', async (c) => {
    requireReader(deps, c.req.raw);
    const record = await readForPage(deps, () => readDeployment(deps.reader));
    const other = await deps.otherThread?.();
    const loads = loadsOf(deps, other);
    const { inFlight, waiting } = other ? deps.counters.plus(other.counters) : deps.counters;
    const known = new Map(record.engines.map((engine) => [engine.row.url, engine]));
    const loadOf = new Map(loads.map((load) => [load.engine, load]));
    const engines = engineList(
      record.engines.map(({ row }) => row),
      callsIn(loads),
    );
    const reply: DeploymentReply = {
      now: record.now,
      engines: engines.map((engine) => engineOf(engine, known.get(engine.url), loadOf.get(engine.url))),
      discovery: deps.discovery().map(({ foundBy, engines: many, failure }) => ({
        found_by: foundBy,
        engines: many,
        failing_since: failure && epochSeconds(failure.since),
        reason: failure && failure.message,
      })),
      calls: {
        in_flight: inFlight,
        wait_for_budget: waiting,
        wait_for_room: deps.engines.roomWaits.waiting + (other?.roomWaits.waiting ?? 0),
      },
      runs: record.runs.map((run) => ({
        run_id: run.runId,
        status: run.status,
        reason: run.reason,
        waits_for_engines_since: run.waitsSince,
        open_groups: run.openGroups,
        unclaimed_groups: run.unclaimed,
        unopened_trials: run.unopened,
        trials_under_way: run.underWay,
        verifying: run.verifying,
        between_attempts: run.betweenAttempts,
        stragglers: run.stragglers,
        oldest: run.oldest && { trial_id: run.oldest.trialId, opened_at: run.oldest.openedAt },
      })),
      hosts: record.hosts.map(({ host, attempts, lost, lastAt, underWay, sandboxes }) => ({
        host,
        attempts,
        lost,
        last_at: lastAt,
        under_way: underWay,
        sandboxes: sandboxes.map(({ trialId, attempt, runId, openedAt, isVerifying }) => ({
          trial_id: trialId,
          attempt,
          run_id: runId,
          opened_at: openedAt,
          verifying: isVerifying,
        })),
      })),
    };
    return c.json(reply);
  });
  return app;
}

function engineOf(
  engine: Engine,
  known: DeploymentEngine | undefined,
  load: ReplicaLoad | undefined,
): DeploymentEngineReply {
  const isOut = known !== undefined && engine.state === 'serving' && !engine.in_rotation && engine.run_id !== null;
  return {
    ...engine,
    confirmed: known?.confirmed ?? null,
    awaits: isOut ? (known.isBehind ? 'repair' : 'publication') : null,
    awaits_since: isOut ? epochSeconds(known.row.updatedAt) : null,
    trouble: load?.complaint ?? null,
    load: load?.reported
      ? {
          running: load.reported.running,
          waiting: load.reported.waiting,
          kv_use: load.reported.kvUse,
          kv_tokens: load.reported.kvTokens,
          at: load.reportedAt / 1_000,
        }
      : null,
    escapes: load?.escapes ?? 0,
    trials: known?.trials ?? 0,
    long_calls: known?.longCalls ?? 0,
    longest_call_at: known?.longestCallAt ?? null,
  };
}
