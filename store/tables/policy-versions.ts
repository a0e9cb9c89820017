import { integer, jsonb, pgTable, primaryKey, real, text, timestamp, unique } from 'drizzle-orm/pg-core';
import type { Canary } from '../../core/canary.ts';
import { runs } from './runs.ts';

/** One set of weights. Version 0 is the base model. */
export const policyVersions = pgTable(
  'policy_versions',
  {
    runId: text('run_id')
      .notNull()
      .references(() => runs.id, { onDelete: 'cascade' }),
    version: integer().notNull(),
    parentVersion: integer('parent_version'),
    iteration: integer(),
    take: integer(),
    /** The digest of parent checkpoint, batch and trainer settings. A step with this key is applied only once. */
    stepKey: text('step_key').notNull(),
    checkpoint: text().notNull(),
    checkpointSha256: text('checkpoint_sha256').notNull(),
    batchSha256: text('batch_sha256'),
    canary: jsonb().$type<Canary>().notNull(),
    /** The largest `canary_difference` of a replica at version 0, in nats. */
    canaryTolerance: real('canary_tolerance'),
    metrics: jsonb().$type<Record<string, number>>().notNull().default({}),
    /** The reason why its step made no update: a value was not finite. Its weights are then its parent's. */
    skipped: text(),
    /** The time at which its checkpoint was removed because the run had completed (`keep_checkpoints_at_end`); null: then it was not. */
    prunedAt: timestamp('pruned_at', { withTimezone: true }),
    createdAt: timestamp('created_at', { withTimezone: true }).notNull().defaultNow(),
  },
  (t) => [primaryKey({ columns: [t.runId, t.version] }), unique('one_version_a_step').on(t.runId, t.iteration, t.take)],
);
