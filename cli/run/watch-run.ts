import { setTimeout as sleep } from 'node:timers/promises';
import { namesRepair, needsOtherModel, OTHER_MODEL_ADVICE } from '../../core/block-advice.ts';
import { inTime } from '../../core/in-time.ts';
import { describe } from '../../workflows/describe.ts';
import type { RunStatusReport } from '../../workflows/messages.ts';
import { progressLine } from '../progress.ts';
import { readRunRecord } from '../show/run-record.ts';
import { slowEngineWarnings } from '../show/slow-engines.ts';
import { readEngineSpeeds } from '../../store/queries/read-engine-speeds.ts';
import type { DeploymentClients } from './connect.ts';
import { holderText, readEngineHolder } from './engine-holder.ts';
import { progressTexts, readProgress } from './run-progress.ts';
import { readStepProgress } from './step-progress.ts';

const WARN_MS = 15_000;
/** Temporal's client tries again for longer than a person should look at an old line. */
const ANSWER_MS = 5_000;
const AWAY =
  'its deployment does not answer, and may be stopped (`npx trialgate status`). This line goes on when it does, after `npx trialgate up`';
const ENDED = ['completed', 'failed', 'cancelled', 'blocked'];

/**
 * Shows a run until it ends. Trials come from the store, the phase from the workflow. While either does not answer, the last
 * known state stays on the screen; while both do not, the screen says so.
 * @throws TrialgateError when the run failed, was cancelled, or is blocked
 */
export async function watchRun({ client, db }: DeploymentClients, runId: string, signal: AbortSignal): Promise<void> {
  const line = progressLine();
  const handle = client.workflow.getHandle(runId);
  /**
   * Null when Temporal does not answer in time, or at the signal. The client gets no signal: it adds a listener for each
   * question and keeps it, and its repeated tries do not heed one.
   */
  const answered = <T>(question: () => Promise<T>): Promise<T | null> =>
    inTime(client.withDeadline(Date.now() + ANSWER_MS, question), ANSWER_MS, signal).catch(() => null);
  const ask = (id: string) => answered(() => client.workflow.getHandle(id).query<RunStatusReport>('status'));
  let isRecorded = false;
  let iterationsPrinted = 0;
  let warnedAt = Date.now();
  let toldOfHolder: string | null = null;
  const warned = new Set<string>();
  try {
    for (;;) {
      const report = await ask(runId);
      const progress = await inTime(readProgress(db, runId), ANSWER_MS, signal).catch(() => undefined);
      signal.throwIfAborted();
      if (progress) {
        isRecorded = true;
        const step = await answered(() => readStepProgress(client, report));
        signal.throwIfAborted();
        // The reason for which a run ended is in the error.
        if (progress.status === 'completed' || !ENDED.includes(progress.status))
          line.show(...progressTexts(runId, progress, report, step));
        // A run that waits has a reason in the store.
        if (progress.reason !== null) await tellOfHolder();
        iterationsPrinted = await printIterations(iterationsPrinted);
        if (Date.now() - warnedAt >= WARN_MS) await warnOfSlowEngines();
        if (ENDED.includes(progress.status)) return throwUnlessCompleted(runId, progress, await typeOfBlock(progress));
      } else if (progress === undefined && report === null) line.show(`${runId}: ${AWAY}`);
      else if (await endedEarly()) {
        return throwUnlessCompleted(runId, { status: 'failed', reason: await reasonOf() }, null);
      } else if (!isRecorded) line.show(`${runId}: being prepared`);
      await sleep(1000, undefined, { signal });
    }
  } finally {
    line.end();
  }

  async function printIterations(printed: number): Promise<number> {
    const record = await readRunRecord(db, runId).catch(() => null);
    const done = record?.iterations.filter((row) => row.status === 'done') ?? [];
    for (const row of done.slice(printed)) {
      const mean = row.reward ? row.reward.mean.toFixed(3) : '–';
      line.print(`iteration ${row.iteration}: reward mean ${mean}, policy ${row.trained_version} published`);
    }
    return Math.max(printed, done.length);
  }
  /** Says once, and when it has changed, which run must be resumed or cancelled before this one gets engines. */
  async function tellOfHolder(): Promise<void> {
    const holder = await readEngineHolder(db, runId, ask).catch(() => null);
    // The rest of the text may come and go with the holder's answers.
    const key = holder && `${holder.run} ${holder.phase}`;
    if (holder === null || key === toldOfHolder) return;
    line.print(holderText(holder));
    toldOfHolder = key;
  }
  /** Warns once of each engine. */
  async function warnOfSlowEngines(): Promise<void> {
    warnedAt = Date.now();
    for (const speed of await readEngineSpeeds(db, runId).catch(() => []))
      for (const warning of warned.has(speed.engine) ? [] : slowEngineWarnings([speed])) {
        warned.add(speed.engine);
        line.print(`WARNING: ${warning}`);
      }
  }
  /** Asks again: the report may be older than the block. */
  async function typeOfBlock({ status }: { status: string }): Promise<string | null> {
    if (status !== 'blocked') return null;
    const report = await ask(runId);
    return report?.reason_type ?? null;
  }
  async function endedEarly(): Promise<boolean> {
    const description = await answered(() => handle.describe());
    return description !== null && description.status.name !== 'RUNNING';
  }
  async function reasonOf(): Promise<string> {
    return handle.result().then(() => 'it ended before it began', describe);
  }
}

/** The run did not complete. The exit code is 4. */
class RunEnded extends Error {
  readonly canResume: boolean;

  constructor(message: string, canResume: boolean) {
    super(message);
    this.canResume = canResume;
  }
}

/** False when a run ended for a reason after which `resume` fails again. */
export const canResume = (error: unknown): boolean => !(error instanceof RunEnded) || error.canResume;

/** @throws RunEnded unless the run has completed. `type` is the type of the failure that blocked it, if its workflow told it. */
export function throwUnlessCompleted(
  runId: string,
  { status, reason }: { status: string; reason: string | null },
  type: string | null,
): void {
  if (status === 'completed') return;
  if (status !== 'blocked') throw new RunEnded(`run ${runId} ${status}: ${reason}`, true);
  const mayResume = !needsOtherModel(type);
  const advice = mayResume ? `Repair that, then: npx trialgate resume ${runId}` : OTHER_MODEL_ADVICE;
  throw new RunEnded(`run ${runId} is blocked: ${reason}${namesRepair(reason) ? '' : `\n${advice}`}`, mayResume);
}
