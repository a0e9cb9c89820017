import { heartbeat, sleep } from '@temporalio/activity';
import { and, eq } from 'drizzle-orm';
import { replicas } from '../store/schema.ts';
import type { Deps } from './deps.ts';
import { readEngineLabel } from './engine-label.ts';
import { isRunning } from './is-running.ts';
import { versionLabel } from './label.ts';
import { readRun } from './read-run.ts';

type Row = typeof replicas.$inferSelect;
export type PoolStanding = {
  /** In rotation, and they say the label they should have. */
  whole: Row[];
  /** A restarted engine says `default`, one that did not confirm a version something else; one that is away says nothing. */
  lost: (Row & { answers: boolean })[];
  /** How many replicas the run cannot do without. */
  needed: number;
};

/** How the run's replicas stand, by what each says of itself. */
export async function standingOf(deps: Pick<Deps, 'db'>, runId: string, patienceMs?: number): Promise<PoolStanding> {
  const rows = await deps.db.select().from(replicas).where(eq(replicas.runId, runId));
  const { min_replicas } = await readRun(deps.db, runId);
  const asked = await Promise.all(rows.map(async (row) => ({ row, said: await readEngineLabel(row.url, patienceMs) })));
  const isWhole = ({ row, said }: (typeof asked)[number]) => row.inRotation && row.label !== null && row.label === said;
  return {
    whole: asked.filter(isWhole).map(({ row }) => row),
    lost: asked.filter((each) => !isWhole(each)).map(({ row, said }) => ({ ...row, answers: said !== null })),
    needed: Math.min(min_replicas ?? rows.length, rows.length),
  };
}

/** Those that are to be brought up to date: the ones that answer, and where too few are whole all of them. */
export const toMend = ({ whole, lost, needed }: PoolStanding): Row[] => (whole.length >= needed ? lost.filter(({ answers }) => answers) : lost);

const isEnough = ({ whole, needed }: PoolStanding): boolean => whole.length > 0 && whole.length >= needed;

/** Whether the run still owns its pool, and the pool has this version: a run that ended let go of it. */
export const poolHas = (deps: Deps) => async ({ runId, version }: { runId: string; version: number }): Promise<boolean> => {
  const rows = await deps.db.select().from(replicas).where(and(eq(replicas.runId, runId), eq(replicas.inRotation, true)));
  return rows.length > 0 && rows.every((row) => row.label === versionLabel(runId, version));
};

/** The version that replicas which are to be mended should have; null when there is none such. */
export const missingVersion = (deps: Deps) => async (input: { runId: string }): Promise<number | null> => {
  const label = toMend(await standingOf(deps, input.runId)).find((row) => row.label !== null)?.label;
  const prefix = `${input.runId}@`;
  return label?.startsWith(prefix) ? Number(label.slice(prefix.length)) : null;
};

/** Waits until the pool has enough replicas again. Bounded by the activity's own timeout. */
export const awaitPool = (deps: Deps) => async (input: { runId: string }): Promise<void> => {
  while (!isEnough(await standingOf(deps, input.runId))) {
    heartbeat();
    await sleep('2s');
  }
};

/** Whether a replica answers that has not its version, and nobody is giving it one. */
export const hasLostReplica = (deps: Deps) => async ({ runId }: { runId: string }): Promise<boolean> => {
  const isLost = async () => (await standingOf(deps, runId)).lost.some(({ answers }) => answers);
  // Asked again: a publication that has just ended had them out of rotation.
  return (await isLost()) && !(await isRunning(deps, `${runId}/publish`)) && (await isLost());
};
