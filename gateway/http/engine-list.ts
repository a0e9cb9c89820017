import { DEPLOYMENT_POOL } from '../../store/schema.ts';
import { addLoads, type Snapshot } from '../calls/counters.ts';
import type { ReplicaLoad, ReplicaRow } from '../engines/pool.ts';
import type { GatewayDeps } from './deps.ts';
import type { Engine } from './openapi/schemas.ts';

/** Returns the loads of the replicas as both threads of this process know them. */
export const loadsOf = (
  { engines }: Pick<GatewayDeps, 'engines'>,
  other: Snapshot | null | undefined,
): ReplicaLoad[] => (other ? addLoads(engines.loads, other.engines) : engines.loads);

/** Returns the calls under way by engine. */
export const callsIn = (loads: readonly ReplicaLoad[]): Map<string, number> =>
  new Map(loads.map(({ engine, inFlight }) => [engine, inFlight]));

/** Lists the replicas, and those that left while calls of this process are under way there. */
export function engineList(rows: readonly ReplicaRow[], calls: ReadonlyMap<string, number>): Engine[] {
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

function foundByOf({ pool, foundBy }: ReplicaRow): Engine['found_by'] {
  if (pool !== DEPLOYMENT_POOL) return 'run';
  return foundBy === 'nobody' ? null : foundBy;
}

function stateOf({ foundBy, draining, drainedByHand }: ReplicaRow): Engine['state'] {
  if (foundBy === 'nobody') return 'left';
  return draining || drainedByHand ? 'draining' : 'serving';
}
