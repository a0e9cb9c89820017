import { boolean, pgTable, text, timestamp } from 'drizzle-orm/pg-core';

export const DEPLOYMENT_POOL = 'deployment';

/** One inference process. A pool (all replicas of one run) belongs to one run at a time. */
export const replicas = pgTable('replicas', {
  /** `http://host:port` or `unix:/path/to.sock`. */
  url: text().primaryKey(),
  /** The pool that it belongs to: the deployment's own (`--engine`), or that of the run whose file names it. */
  pool: text().notNull().default(DEPLOYMENT_POOL),
  /** The run that owns it now. */
  runId: text('run_id'),
  /** The weight version that the replica has or is being given: `{run}@{version}`. */
  weightVersion: text('weight_version'),
  /** False while weights are being published to it, or when it did not confirm them. */
  inRotation: boolean('in_rotation').notNull().default(true),
  updatedAt: timestamp('updated_at', { withTimezone: true }).notNull().defaultNow(),
});
