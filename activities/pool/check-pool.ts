import { heartbeat, sleep } from '@temporalio/activity';
import { and, eq, not } from 'drizzle-orm';
import { isDraining } from '../../store/queries/is-draining.ts';
import { replicas } from '../../store/schema.ts';
import type { Deps } from '../deps.ts';
import { readWeightVersion } from './read-weight-version.ts';
import { isRunning } from '../temporal/is-running.ts';
import { weightVersionOf } from '../../core/weight-version.ts';
import { readRun } from '../run/read-run.ts';

type Row = typeof replicas.$inferSelect;
export type PoolState = {
  /** The replicas in rotation that report the weight version that they should have. */
  whole: Row[];
  /**
   * The other replicas. A restarted engine reports `default`, one that did not confirm a version reports something else, and one that is
   * away does not answer.
   */
  lost: (Row & { answers: boolean })[];
  /** The number of replicas that the run needs. */
  needed: number;
};

type PoolDeps = Pick<Deps, 'db' | 'gatewayUrls' | 'secret'>;

/** Reads the state of the run's replicas from their own reports. */
export async function readPoolState(deps: PoolDeps, runId: string, timeoutMs?: number): Promise<PoolState> {
  const rows = await deps.db
    .select()
    .from(replicas)
    .where(and(eq(replicas.runId, runId), not(isDraining)));
  const { min_replicas } = await readRun(deps.db, runId);
  const replies = await Promise.all(
    rows.map(async (row) => ({
      row,
      weightVersion: await readWeightVersion(row.url, deps, { timeoutMs, expected: row.weightVersion }),
    })),
  );
  const isWhole = ({ row, weightVersion }: (typeof replies)[number]) =>
    row.inRotation && row.weightVersion !== null && row.weightVersion === weightVersion;
  return {
    whole: replies.filter(isWhole).map(({ row }) => row),
    lost: replies
      .filter((each) => !isWhole(each))
      .map(({ row, weightVersion }) => ({ ...row, answers: weightVersion !== null })),
    needed: Math.min(min_replicas ?? rows.length, rows.length),
  };
}

/** Returns the replicas to repair: the lost ones that answer, or all lost ones when too few are whole. */
export const replicasToRepair = ({ whole, lost, needed }: PoolState): Row[] =>
  whole.length >= needed ? lost.filter(({ answers }) => answers) : lost;

const isEnough = ({ whole, needed }: PoolState): boolean => whole.length > 0 && whole.length >= needed;

/** Returns true when the run owns its pool and the pool has this version. A run that ended has released its pool. */
export const poolHas =
  (deps: Deps) =>
  async ({ runId, version }: { runId: string; version: number }): Promise<boolean> => {
    const rows = await deps.db
      .select()
      .from(replicas)
      .where(and(eq(replicas.runId, runId), eq(replicas.inRotation, true), not(isDraining)));
    return rows.length > 0 && rows.every((row) => row.weightVersion === weightVersionOf(runId, version));
  };

/** Returns the version that the replicas to repair should have; null when there is none. */
export const missingVersion =
  (deps: Deps) =>
  async (input: { runId: string }): Promise<number | null> => {
    const weightVersion = replicasToRepair(await readPoolState(deps, input.runId)).find(
      (row) => row.weightVersion !== null,
    )?.weightVersion;
    const prefix = `${input.runId}@`;
    return weightVersion?.startsWith(prefix) ? Number(weightVersion.slice(prefix.length)) : null;
  };

/** Waits until the pool has enough whole replicas. The activity's timeout bounds the wait. */
export const awaitPool =
  (deps: Deps) =>
  async (input: { runId: string }): Promise<void> => {
    while (!isEnough(await readPoolState(deps, input.runId))) {
      heartbeat();
      await sleep('2s');
    }
  };

/** Returns true when a replica answers without its version and no publication is under way. */
export const hasLostReplica =
  (deps: Deps) =>
  async ({ runId }: { runId: string }): Promise<boolean> => {
    const isLost = async () => (await readPoolState(deps, runId)).lost.some(({ answers }) => answers);
    // This asks twice, because a publication that has just ended had its replicas out of rotation.
    return (await isLost()) && !(await isRunning(deps, `${runId}/publish`)) && (await isLost());
  };
