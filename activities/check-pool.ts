import { heartbeat, sleep } from '@temporalio/activity';
import { and, eq, isNotNull } from 'drizzle-orm';
import { replicas } from '../store/schema.ts';
import type { Deps } from './deps.ts';
import { readEngineLabel } from './engine-label.ts';
import { versionLabel } from './label.ts';
import { readRun } from './read-run.ts';

/** Whether enough replicas of the run's pool are in rotation and say the label they should have. A restarted engine says `default`. */
const checkPool = (deps: Deps) => async (input: { runId: string }): Promise<boolean> => {
  const rows = await deps.db.select().from(replicas).where(eq(replicas.runId, input.runId));
  const { min_replicas } = await readRun(deps.db, input.runId);
  const labels = await Promise.all(rows.map((row) => readEngineLabel(row.url)));
  const whole = rows.filter((row, i) => row.inRotation && row.label !== null && row.label === labels[i]);
  return whole.length > 0 && whole.length >= Math.min(min_replicas ?? rows.length, rows.length);
};

/** Whether the run still owns its pool, and the pool has this version: a run that ended let go of it. */
export const poolHas = (deps: Deps) => async ({ runId, version }: { runId: string; version: number }): Promise<boolean> => {
  const rows = await deps.db.select().from(replicas).where(and(eq(replicas.runId, runId), eq(replicas.inRotation, true)));
  return rows.length > 0 && rows.every((row) => row.label === versionLabel(runId, version));
};

/** The version that a pool which is not whole should have; null for one that is. */
export const missingVersion = (deps: Deps) => async (input: { runId: string }): Promise<number | null> => {
  if (await checkPool(deps)(input)) return null;
  const [row] = await deps.db.select({ label: replicas.label }).from(replicas).where(and(eq(replicas.runId, input.runId), isNotNull(replicas.label)));
  const prefix = `${input.runId}@`;
  return row?.label?.startsWith(prefix) ? Number(row.label.slice(prefix.length)) : null;
};

/** Waits until the pool is whole again. Bounded by the activity's own timeout. */
export const awaitPool = (deps: Deps) => async (input: { runId: string }): Promise<void> => {
  while (!(await checkPool(deps)(input))) {
    heartbeat();
    await sleep('2s');
  }
};
