import { and, desc, eq, isNull, sql } from 'drizzle-orm';
import type { Database } from '../../store/database.ts';
import { groups, runs, trials } from '../../store/schema.ts';
import type { RunStatusReport } from '../../workflows/messages.ts';
import type { RunStatus } from './query-status.ts';

/** What the trainer does in phases whose names a reader may not know. The names stay, because its log has them. */
const MEANINGS: Record<string, string> = {
  'start ranks': "the trainer's processes",
  'self-check': 'two ways to compute log-probabilities must agree',
  canary: 'log-probabilities that show which weights an engine has',
  checksum: 'of the weights',
  proximal: 'log-probabilities before the step',
};

const PREPARING = 'preparing';

export type Progress = { status: string; reason: string | null; title: string; trials: string };

/** Reads a run's progress from the store, which answers even while workflows are being restarted. */
export async function readProgress(db: Database, runId: string): Promise<Progress | null> {
  const [run] = await db.select({ status: runs.status, reason: runs.reason }).from(runs).where(eq(runs.id, runId));
  if (!run) return null;
  const [newest] = await db
    .select()
    .from(groups)
    .where(eq(groups.runId, runId))
    .orderBy(desc(groups.openedAt))
    .limit(1);
  if (!newest) return { ...run, title: PREPARING, trials: '' };
  const sameTake =
    newest.iteration === null
      ? and(isNull(groups.iteration), eq(groups.policyVersion, newest.policyVersion))
      : and(eq(groups.iteration, newest.iteration), eq(groups.take, newest.take ?? 1));
  const outcome = sql<string>`coalesce(${trials.outcome}, 'running')`;
  const counts = await db
    .select({ outcome, count: sql<number>`count(*)::int` })
    .from(trials)
    .innerJoin(groups, eq(groups.id, trials.groupId))
    .where(and(eq(groups.runId, runId), sameTake))
    .groupBy(outcome)
    .orderBy(outcome);
  const title =
    newest.iteration === null
      ? `evaluating policy ${newest.policyVersion}`
      : `iteration ${newest.iteration}${newest.take === 1 ? '' : `, take ${newest.take}`}`;
  return { ...run, title, trials: counts.map((row) => `${row.count} ${row.outcome}`).join(', ') };
}

/** Returns the line of a run for `status`: "run r: iteration 2 of 10, train: pack 3 of 12". */
export function statusLine({ run, iteration, iterations, phase, step, waits_for: waits, reason }: RunStatus): string {
  // The phase of a run without engines says already that it waits for them.
  if (phase === 'waiting for engines' && waits?.startsWith('engines '))
    return `run ${run}: iteration ${iteration} of ${iterations}, waiting for ${waits}${after(reason ?? '')}`;
  const doing =
    (step && withoutPhase(step, phase)) || [reason, waits && `waits for ${waits}`].filter((text) => text).join('; ');
  return `run ${run}: iteration ${iteration} of ${iterations}, ${phase}${after(doing)}`;
}

/** Returns the line of a run for a terminal, and a shorter one for a log, which gets it only when it changes. */
export function progressTexts(
  runId: string,
  { status, reason, title, trials: counts }: Progress,
  report: Pick<RunStatusReport, 'phase' | 'waits_for'> | null,
  step: string | null = null,
): [line: string, short: string] {
  const phase = status === 'blocked' ? status : (report?.phase ?? status);
  // The first trials come after the longest wait: the trainer and the engines load the model.
  const waits = counts === '' && report?.waits_for ? `waits for ${report.waits_for}` : '';
  // A publication has few phases and may take minutes. A train step says something new with every pack.
  const [stepPhase = ''] = step?.split(', ') ?? [];
  const meaning = MEANINGS[stepPhase] === undefined ? '' : ` (${MEANINGS[stepPhase]})`;
  const stage = phase === 'publish' && stepPhase !== '' ? `${stepPhase}${meaning}` : '';
  const short = stage || waits;
  const where = titleAndPhase(title, phase);
  const doing = step && `${withoutPhase(step, phase)}${meaning}`;
  // This reason begins with the words of the phase.
  if (reason?.startsWith('waiting for ')) return [`${runId}: ${reason}`, `${runId}: ${reason}`];
  return [
    `${runId}: ${where}${after(reason ?? (doing || counts || waits))}`,
    `${runId}: ${where}${after(reason ?? short)}`,
  ];
}

/** Says where the run is, without a phase that repeats the title. */
function titleAndPhase(title: string, phase: string): string {
  if (title === phase || phase === 'completed') return phase;
  if (phase === 'evaluation' && title.startsWith('evaluating')) return title;
  // Before the first trial, the trainer loads the model and the engines get it.
  return `${title}, ${title === PREPARING && phase === 'publish' ? 'first publication' : phase}`;
}

/** A step's text begins with its own phase, which may be the run's. */
const withoutPhase = (step: string, phase: string): string =>
  step === phase ? '' : step.startsWith(`${phase}, `) ? step.slice(phase.length + 2) : step;

const after = (text: string): string => (text === '' ? '' : `: ${text}`);
