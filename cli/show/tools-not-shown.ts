import { and, count, eq, isNull, sql } from 'drizzle-orm';
import { explainToolsNotShown } from '../../gateway/calls/sampling/tools-not-shown.ts';
import type { Database } from '../../store/database.ts';
import { calls, trials } from '../../store/schema.ts';

/** One agent's calls whose tools the model was not shown. `tools` is the most that one of them had. */
export type ToolsNotShown = { agent: string | null; tools: number; calls: number };

/** Returns these calls of a run, by agent. */
export function readToolsNotShown(db: Database, runId: string): Promise<ToolsNotShown[]> {
  const tools = sql<number>`max((${calls.sampling} ->> 'tools_not_shown')::integer)`;
  return db
    .select({ agent: trials.agent, tools, calls: count() })
    .from(calls)
    .innerJoin(trials, eq(trials.id, calls.trialId))
    .where(and(eq(trials.runId, runId), isNull(calls.choiceOf), sql`${calls.sampling} ? 'tools_not_shown'`))
    .groupBy(trials.agent)
    .orderBy(trials.agent);
}

export const toolsNotShownNotices = (found: readonly ToolsNotShown[]): string[] =>
  found.map(
    ({ agent, tools, calls: size }) =>
      `${size} ${size === 1 ? 'call' : 'calls'}${agent === null ? '' : ` of agent ${agent}`}: ${explainToolsNotShown({ sampling: { tools_not_shown: tools } })}`,
  );
