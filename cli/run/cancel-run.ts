import { setTimeout as sleep } from 'node:timers/promises';
import { meantRun } from '../../activities/run/unknown-run.ts';
import { TrialgateError } from '../../core/errors.ts';
import { countFailed } from '../../store/queries/reopen-failed.ts';
import { endingSignal } from '../../workflows/messages.ts';
import type { DeploymentClients } from './connect.ts';

/** This command waits so long for the run's end. A run that needs longer ends without it. */
const WAIT_MS = 20_000;

/**
 * Cancels a run: cuts its trials, releases its engines, and keeps what is finished. Returns a sentence about the result.
 * @param how the reason that the record keeps, after the reason of a block if the run is blocked
 * @throws TrialgateError `not_found` when no such run is under way
 */
export async function cancelRun(
  { client, db }: DeploymentClients,
  runId: string,
  how = 'cancelled by a person',
): Promise<string> {
  const handle = client.workflow.getHandle(runId);
  const description = await handle.describe().catch(() => null);
  if (description?.status.name !== 'RUNNING')
    throw new TrialgateError(
      'not_found',
      `no run ${runId} is under way${await meantRun(db, runId)}: "npx trialgate show" lists all runs`,
    );
  await handle.signal(endingSignal, { reason: how });
  await handle.cancel();
  const ended = handle.result().then(
    () => true,
    () => true,
  );
  const isOver = await Promise.race([ended, sleep(WAIT_MS, false, { ref: false })]);
  const failed = await countFailed(db, runId);
  const retry = failed === 0 ? '' : ` (with --retry-failed its failed trials run again: ${failed})`;
  // An evaluation has an id with a slash, and cannot be resumed.
  const goOn = runId.includes('/')
    ? ''
    : `; to continue it${isOver ? '' : ' afterwards'}: npx trialgate resume ${runId}${retry}`;
  return isOver ? `run ${runId} is cancelled${goOn}` : `run ${runId} is being cancelled, its trials still end${goOn}`;
}
