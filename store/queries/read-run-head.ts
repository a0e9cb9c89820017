import { eq } from 'drizzle-orm';
import { isObject } from '../../core/json.ts';
import type { Database } from '../database.ts';
import { quarantinedTasks, runs } from '../schema.ts';

export type RunHead = typeof runs.$inferSelect & {
  /** The weights of its rewards by name. */
  weights: Record<string, number>;
  quarantined: (typeof quarantinedTasks.$inferSelect)[];
};

/** Returns a run's row, or null if there is none. */
export async function readRunHead(db: Database, runId: string): Promise<RunHead | null> {
  const [run] = await db.select().from(runs).where(eq(runs.id, runId));
  if (!run) return null;
  const quarantined = await db
    .select()
    .from(quarantinedTasks)
    .where(eq(quarantinedTasks.runId, runId))
    .orderBy(quarantinedTasks.at);
  return { ...run, weights: weightsOf(run.config), quarantined };
}

function weightsOf(config: unknown): Record<string, number> {
  const weights = isObject(config) ? config.reward_weights : null;
  if (!isObject(weights)) return {};
  return Object.fromEntries(
    Object.entries(weights).flatMap(([name, weight]) => (typeof weight === 'number' ? [[name, weight]] : [])),
  );
}
