import { and, eq, isNotNull } from 'drizzle-orm';
import { readRun } from '../../activities/read-run.ts';
import type { Database } from '../../store/database.ts';
import { iterations, runs } from '../../store/schema.ts';
import type { Connected } from './connect.ts';
import { markRunning } from './mark-running.ts';
import { startRescoring } from './rescore-run.ts';
import { startRun } from './start-run.ts';
import { updateRun } from './update-run.ts';

/** Unblocks a run that waits for a person, ends a pause; starts a new execution, in the open take, of one that ended. */
export async function resumeRun({ client, db }: Connected, runId: string): Promise<string> {
  const config = await readRun(db, runId);
  const handle = client.workflow.getHandle(runId);
  const description = await handle.describe().catch(() => null);
  if (description?.status.name === 'RUNNING') return updateRun(client, runId, 'resume');
  await markRunning(db, runId);
  if (await isRescoring(db, runId)) await startRescoring(client, runId, config);
  else await startRun(client, runId, config, { resume: true });
  return `run ${runId} goes on`;
}

/** Whether the run trains on another one's batch, and has not yet. */
async function isRescoring(db: Database, runId: string): Promise<boolean> {
  const open = and(eq(iterations.runId, runs.id), eq(iterations.status, 'open'));
  return (await db.select({ id: runs.id }).from(runs).innerJoin(iterations, open).where(and(eq(runs.id, runId), isNotNull(runs.rescores)))).length > 0;
}
