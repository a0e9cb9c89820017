import type { Client } from '@temporalio/client';
import { eq, sql } from 'drizzle-orm';
import type { Database } from '../../store/database.ts';
import { attempts, trials } from '../../store/schema.ts';

/** Counts of a run's work, and of how often it was begun. */
export type RepeatedWork = { trials: number; attempts: number; trainSteps: number; trainTries: number };

export async function repeatedOf(
  { db, client }: { db: Database; client: Client },
  runId: string,
): Promise<RepeatedWork> {
  const [counts] = await db
    .select({ trials: sql<number>`count(distinct ${trials.id})::int`, attempts: sql<number>`count(*)::int` })
    .from(attempts)
    .innerJoin(trials, eq(trials.id, attempts.trialId))
    .where(eq(trials.runId, runId));
  return { trials: counts?.trials ?? 0, attempts: counts?.attempts ?? 0, ...(await trainTries(client, runId)) };
}

/** Counts train steps, and how often a worker began one, from the histories of all the run's workflows. */
async function trainTries(client: Client, runId: string): Promise<Pick<RepeatedWork, 'trainSteps' | 'trainTries'>> {
  let [trainSteps, trainTriesMade] = [0, 0];
  for await (const { workflowId, runId: execution } of client.workflow.list({
    query: `WorkflowId STARTS_WITH "${runId}"`,
  })) {
    if (workflowId !== runId && !workflowId.startsWith(`${runId}/`)) continue;
    const { events } = await client.workflow.getHandle(workflowId, execution).fetchHistory();
    const asked = new Set<string>();
    for (const {
      eventId,
      activityTaskScheduledEventAttributes: scheduled,
      activityTaskStartedEventAttributes: started,
    } of events ?? []) {
      if (scheduled?.activityType?.name === 'trainStep') asked.add(String(eventId));
      if (started && asked.has(String(started.scheduledEventId))) trainTriesMade += started.attempt ?? 1;
    }
    trainSteps += asked.size;
  }
  return { trainSteps, trainTries: trainTriesMade };
}

/** Returns attempts beyond the first as a share of all trials, and the same for train steps. */
export const sharesOf = ({
  trials: each,
  attempts: made,
  trainSteps,
  trainTries: tried,
}: RepeatedWork): { trials: number; train: number } => ({
  trials: each === 0 ? 0 : (made - each) / each,
  train: trainSteps === 0 ? 0 : (tried - trainSteps) / trainSteps,
});
