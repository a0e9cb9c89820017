import { readRun } from '../../activities/read-run.ts';
import type { Connected } from './connect.ts';
import { markRunning } from './mark-running.ts';
import { startRun } from './start-run.ts';

/** Unblocks a run that waits for a person; starts a new execution, in the open take, of one that ended. */
export async function resumeRun({ client, db }: Connected, runId: string): Promise<string> {
  const config = await readRun(db, runId);
  const handle = client.workflow.getHandle(runId);
  const description = await handle.describe().catch(() => null);
  if (description?.status.name === 'RUNNING') return handle.executeUpdate<string, []>('resume');
  await markRunning(db, runId);
  await startRun(client, runId, config, { resume: true });
  return `run ${runId} goes on`;
}
