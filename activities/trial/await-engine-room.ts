import { ApplicationFailure } from '@temporalio/common';
import { and, eq } from 'drizzle-orm';
import { sleep } from '../../core/sleep.ts';
import type { Database } from '../../store/database.ts';
import { readEngineSpeeds, type EngineSpeed } from '../../store/queries/read-engine-speeds.ts';
import { replicas } from '../../store/schema.ts';

/** An engine on which a call has waited so long for its first token has more calls than it can serve. */
const OVERLOADED_SECONDS = 30;
const POLL_MS = 5_000;

/**
 * Waits a while if every engine of a run is overloaded: a trial that began now would only wait for them. The waits of the trials under way
 * show it, so the first trials of a run wait for nothing. `onWait` is called when it begins to wait.
 * @throws ApplicationFailure when they still are, so that Temporal tries the opening again later. Its slot is free for other runs meanwhile.
 */
export async function awaitEngineRoom(
  db: Database,
  runId: string,
  { signal, onWait }: { signal: AbortSignal; onWait: () => void },
): Promise<void> {
  if (!(await areOverloaded(db, runId))) return;
  onWait();
  await sleep(POLL_MS, signal);
  if (await areOverloaded(db, runId))
    throw ApplicationFailure.create({ type: 'engine_room', message: 'calls of others wait long for every engine' });
}

async function areOverloaded(db: Database, runId: string): Promise<boolean> {
  const overloaded = (await readEngineSpeeds(db, runId)).filter(isOverloaded).map(({ engine }) => engine);
  if (overloaded.length === 0) return false;
  const inRotation = await db
    .select({ url: replicas.url })
    .from(replicas)
    .where(and(eq(replicas.runId, runId), eq(replicas.inRotation, true)));
  return inRotation.length > 0 && inRotation.every(({ url }) => overloaded.includes(url));
}

const isOverloaded = ({ longest_wait }: EngineSpeed): boolean => longest_wait >= OVERLOADED_SECONDS;
