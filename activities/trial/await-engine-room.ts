import { and, eq } from 'drizzle-orm';
import { sleep } from '../../core/sleep.ts';
import type { Database } from '../../store/database.ts';
import { readEngineSpeeds, type EngineSpeed } from '../../store/queries/read-engine-speeds.ts';
import { replicas } from '../../store/schema.ts';

/** An engine on which a call has waited so long for its first token has more calls than it can serve. */
const OVERLOADED_SECONDS = 30;
const POLL_MS = 5_000;

/**
 * Waits while every engine of a run is overloaded: a trial that began now would only wait for them, with its time running. The waits of
 * the trials under way show it, so the first trials of a run wait for nothing. `onWait` is called once, when it begins to wait.
 */
export async function awaitEngineRoom(
  db: Database,
  runId: string,
  { signal, onWait }: { signal: AbortSignal; onWait: () => void },
): Promise<void> {
  for (let isWaiting = false; await areOverloaded(db, runId); isWaiting = true) {
    if (!isWaiting) onWait();
    await sleep(POLL_MS, signal);
  }
}

async function areOverloaded(db: Database, runId: string): Promise<boolean> {
  const speeds = await readEngineSpeeds(db, runId);
  if (!speeds.some(isOverloaded)) return false;
  const inRotation = await db.$count(replicas, and(eq(replicas.runId, runId), eq(replicas.inRotation, true)));
  return speeds.filter(isOverloaded).length >= Math.max(1, inRotation);
}

const isOverloaded = ({ longest_wait }: EngineSpeed): boolean => longest_wait >= OVERLOADED_SECONDS;
