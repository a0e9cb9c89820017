import { boolean, pgTable, text, timestamp } from 'drizzle-orm/pg-core';

export const DEPLOYMENT_POOL = 'deployment';

/**
 * The sources that name engines of the deployment: the list of `--engine`, a file, the labels of Kubernetes' pods, and a person. If several
 * name the same engine, only the first in this order decides about it and removes its row.
 */
export const FOUND_BY = ['list', 'file', 'kubernetes', 'hand'] as const;
export type FoundBy = (typeof FOUND_BY)[number];

/** One inference process. A pool (all replicas of one run) belongs to one run at a time. */
export const replicas = pgTable('replicas', {
  /** `http://host:port` or `unix:/path/to.sock`, and before it the kind of engine, if that is not vLLM (`core/engine-url.ts`). */
  url: text().primaryKey(),
  /** The pool that it belongs to: the deployment's own (`--engine`), or that of the run whose file names it. */
  pool: text().notNull().default(DEPLOYMENT_POOL),
  /**
   * The source that names it. Engines of relay workers and of run files count as named by a list. `nobody`: it has left, and its row stays
   * until another engine joins, because it says which run has the pool.
   */
  foundBy: text('found_by').$type<FoundBy | 'nobody'>().notNull().default('list'),
  /** True: it gets no new call, because it was found draining. */
  draining: boolean().notNull().default(false),
  /** True: it gets no new call, because a person drains it. */
  drainedByHand: boolean('drained_by_hand').notNull().default(false),
  /** The run that owns it now. */
  runId: text('run_id'),
  /** The weight version that the replica has or is being given: `{run}@{version}`. */
  weightVersion: text('weight_version'),
  /** False while weights are being published to it, or when it did not confirm them. */
  inRotation: boolean('in_rotation').notNull().default(true),
  updatedAt: timestamp('updated_at', { withTimezone: true }).notNull().defaultNow(),
});
