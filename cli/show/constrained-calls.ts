import { and, count, eq, inArray, sql } from 'drizzle-orm';
import { constrainedAdvice } from '../../gateway/calls/sampling/framework-modes.ts';
import type { Database } from '../../store/database.ts';
import { calls, runs, trials } from '../../store/schema.ts';

/** One agent's calls that are not trained because their requests force the form of the reply. `fields` are the request fields that force it. */
export type ConstrainedCalls = { agent: string | null; fields: string[]; client: string | null; calls: number };

/** Returns the run's calls that a grammar or a forced tool makes untrainable, by agent and request field. The most frequent come first. */
export async function readConstrained(db: Database, runId: string): Promise<ConstrainedCalls[]> {
  const fields = sql<string[]>`${calls.sampling} -> 'constraints'`;
  const client = sql<string | null>`${calls.sampling} ->> 'client'`;
  const rows = await db
    .select({ agent: trials.agent, fields, client, calls: count() })
    .from(calls)
    .innerJoin(trials, eq(trials.id, calls.trialId))
    .where(
      and(
        eq(trials.runId, runId),
        eq(calls.untrainable, 'sampling_not_reproducible'),
        sql`${calls.sampling} ->> 'constrained_decoding' = 'enforce'`,
      ),
    )
    .groupBy(trials.agent, fields, client);
  return rows.toSorted((a, b) => b.calls - a.calls);
}

/** An agent chooses its `User-Agent`, so it could cause any number of notices. */
const MAX_NOTICES = 5;

/** Returns a notice for each of the most frequent groups of these calls. */
export function constrainedNotices(found: readonly ConstrainedCalls[]): string[] {
  const notices = found
    .slice(0, MAX_NOTICES)
    .map(
      ({ agent, fields, client, calls: size }) =>
        `${notTrained(size)}${agent === null ? '' : ` (agent ${agent})`}: ${constrainedAdvice(fields, client)}`,
    );
  const others = found.slice(MAX_NOTICES).reduce((sum, each) => sum + each.calls, 0);
  return others === 0
    ? notices
    : [...notices, `${notTrained(others)} for the same reason: \`show RUN --json\` lists them`];
}

const notTrained = (size: number): string => `${size} ${size === 1 ? 'call is' : 'calls are'} not trained`;

/** Returns these notices for each run that is under way. */
export async function readConstrainedWarnings(db: Database): Promise<string[]> {
  const underWay = await db
    .select({ id: runs.id })
    .from(runs)
    .where(inArray(runs.status, ['running', 'blocked']));
  const byRun = await Promise.all(
    underWay.map(async ({ id }) => ({ id, notices: constrainedNotices(await readConstrained(db, id)) })),
  );
  return byRun.flatMap(({ id, notices }) => notices.map((notice) => `run ${id}: ${notice}`));
}
