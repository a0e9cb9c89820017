import type { Database } from '../../../store/database.ts';
import { openAttempt } from '../../../store/queries/open-attempt.ts';
import { sealAttempt } from '../../../store/queries/seal-attempt.ts';
import { groups, iterations, quarantinedTasks, runs } from '../../../store/schema.ts';

/** Fills the record with a run that failed in its first iteration. All its names, reasons and settings are one text. */
export async function recordFailedRun(db: Database, runId: string, text: string): Promise<void> {
  await db.insert(runs).values({ id: runId, config: { model: text }, status: 'failed', reason: text });
  await db.insert(iterations).values({ runId, iteration: 0, take: 1, policyVersion: 0 });
  const group = {
    id: `${runId}/0.1/0`,
    runId,
    kind: 'train' as const,
    iteration: 0,
    take: 1,
    ordinal: 0,
    task: text,
    agent: text,
    size: 2,
    policyVersion: 0,
  };
  await db.insert(groups).values(group);
  await db.insert(quarantinedTasks).values({ runId, task: text, reason: text });
  const lost = { trialId: `${runId}-lost`, attempt: 1 };
  await openAttempt(db, { ...lost, runId, groupId: group.id, trialIndex: 1 });
  await sealAttempt(db, { ...lost, outcome: 'infra_error', reason: text, evidence: 'host' });
}
