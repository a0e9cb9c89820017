import { index, integer, pgTable, text, timestamp, uniqueIndex } from 'drizzle-orm/pg-core';
import { runs } from './runs.ts';

export const GROUP_KINDS = ['train', 'eval'] as const;

/** The reason why an ended group is in no batch: its rewards were all equal, it was older than the run allows, or none of its trials was valid. */
export const DROPPED = ['no_spread', 'stale', 'failed'] as const;
export type DropReason = (typeof DROPPED)[number];

/** The trials of one task in one take. Its id is its workflow's id: `{run}/{iteration}.{take}/{ordinal}`. */
export const groups = pgTable(
  'groups',
  {
    id: text().primaryKey(),
    runId: text('run_id')
      .notNull()
      .references(() => runs.id, { onDelete: 'cascade' }),
    kind: text({ enum: GROUP_KINDS }).notNull(),
    /** Null for an evaluation. */
    iteration: integer(),
    take: integer(),
    ordinal: integer().notNull(),
    task: text().notNull(),
    agent: text().notNull(),
    /** The number of its trials: GRPO's G, and those of `over_sampling`. */
    size: integer().notNull(),
    /** The policy version that its first tokens are sampled from. */
    policyVersion: integer('policy_version').notNull(),
    dropped: text({ enum: DROPPED }),
    /** The take whose batch has the group. It does not count when that take is superseded. */
    batchIteration: integer('batch_iteration'),
    batchTake: integer('batch_take'),
    /** With `rollouts: external`: the name of the claim that has the group, and its time. */
    claim: text(),
    claimedAt: timestamp('claimed_at', { withTimezone: true }),
    openedAt: timestamp('opened_at', { withTimezone: true }).notNull().defaultNow(),
    /** The time at which it is cut at the latest; null before its workflow began. */
    deadlineAt: timestamp('deadline_at', { withTimezone: true }),
    /** The time of its quorum, its end or its deadline. A straggler that is carried over may run longer. */
    endedAt: timestamp('ended_at', { withTimezone: true }),
  },
  (t) => [
    index('groups_by_batch').on(t.runId, t.batchIteration, t.batchTake),
    uniqueIndex('groups_by_claim').on(t.runId, t.claim),
    index('groups_by_take').on(t.runId, t.iteration, t.take),
  ],
);
