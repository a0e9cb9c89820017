import { eq } from 'drizzle-orm';
import type { Database } from '../../store/database.ts';
import { readAwaitedOwner } from '../../store/queries/pool-queue.ts';
import { runs } from '../../store/schema.ts';
import type { RunStatusReport } from '../../workflows/messages.ts';

type Report = Pick<RunStatusReport, 'phase' | 'waits_for' | 'until'>;

/** A blocked or paused run, which keeps its engines from the runs that wait for them. */
export type EngineHolder = { run: string } & Report;

/** Returns the blocked or paused run whose engines this run waits for; null if it waits for none, or their owner works. */
export async function readEngineHolder(
  db: Database,
  runId: string,
  ask: (runId: string) => Promise<Report | null>,
): Promise<EngineHolder | null> {
  const owner = await readAwaitedOwner(db, runId);
  if (owner === null) return null;
  const report = await ask(owner);
  if (report !== null) return engineHolder(owner, report);
  const [run] = await db.select({ status: runs.status }).from(runs).where(eq(runs.id, owner));
  return run ? engineHolder(owner, { phase: run.status, waits_for: null, until: null }) : null;
}

export const engineHolder = (run: string, { phase, waits_for, until }: Report): EngineHolder | null =>
  phase === 'blocked' || phase === 'paused' ? { run, phase, waits_for, until } : null;

/** Says how long the run keeps the engines, and what a person can do about it. */
export function holderText({ run, phase, waits_for: waits, until }: EngineHolder): string {
  const what = waits === null ? '' : ` and waits for ${waits}${until === null ? '' : `, at the latest until ${until}`}`;
  return `run ${run}, which has the engines, is ${phase}${what}. \`npx trialgate resume ${run}\` goes on with it, \`npx trialgate cancel ${run}\` frees the engines now`;
}
