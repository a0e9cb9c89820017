import { and, eq, sql } from 'drizzle-orm';
import type { Database } from '../database.ts';
import { attempts, calls } from '../schema.ts';

/** Reasons of a refused call after which the agent cannot go on: the trial's outcome becomes `truncated`. */
export const EXHAUSTED = ['budget_exhausted', 'context_length_exceeded'] as const;
export type Exhausted = (typeof EXHAUSTED)[number];

export type Usage = {
  /** Calls that completed or were cancelled; failed ones cost nothing. */
  calls: number;
  /** Sampled tokens; prompts do not count. */
  tokens: number;
  /** Since the attempt was opened. */
  seconds: number;
  exhausted: Exhausted | null;
};

/** What one attempt has used of its budgets. */
export async function readUsage(db: Database, input: { trialId: string; attempt: number }): Promise<Usage> {
  const { trialId, attempt } = input;
  const [row] = await db
    .select({
      calls: sql<number>`count(${calls.id}) filter (where ${calls.status} <> 'failed')`.mapWith(Number),
      tokens: sql<number>`coalesce(sum(length(${calls.completionTokenIds})) / 4, 0)`.mapWith(Number),
      seconds: sql<number>`extract(epoch from now() - ${attempts.openedAt})`.mapWith(Number),
      budgetOut: sql<boolean | null>`bool_or(${calls.reason} like 'budget_exhausted%')`,
      contextOut: sql<boolean | null>`bool_or(${calls.reason} like 'context_length_exceeded%')`,
    })
    .from(attempts)
    .leftJoin(calls, and(eq(calls.trialId, attempts.trialId), eq(calls.attempt, attempts.attempt)))
    .where(and(eq(attempts.trialId, trialId), eq(attempts.attempt, attempt)))
    .groupBy(attempts.trialId, attempts.attempt);
  if (!row) return { calls: 0, tokens: 0, seconds: 0, exhausted: null };
  const { budgetOut, contextOut, ...used } = row;
  return { ...used, exhausted: budgetOut ? 'budget_exhausted' : contextOut ? 'context_length_exceeded' : null };
}
