import { eq } from 'drizzle-orm';
import { readRun } from '../../activities/run/read-run.ts';
import { unknownRun } from '../../activities/run/unknown-run.ts';
import { sleep } from '../../core/sleep.ts';
import type { Database } from '../../store/database.ts';
import { runs } from '../../store/schema.ts';
import type { LoggerProcess } from './logger-process.ts';
import { noteWritten, type LoggerState } from './logger-state.ts';
import { makeSpans, type Spanned } from './make-spans.ts';
import { partName, SpanParts, type Part } from './span-parts.ts';
import type { LogOptions } from './write-log.ts';

/** After so many failures in a row the others wait for the next try: the receiver or the record may be what fails. */
const MOST_FAILURES = 3;

/**
 * Sends the parts of a run that are over as spans, each once and in the order of their ends. A part that fails keeps no other one from being
 * sent.
 * @throws Error when parts could not be sent, so that they are tried again
 */
export async function writeSpans(
  { db, home, runId, destination, read, follow, onWritten, report }: LogOptions,
  program: LoggerProcess,
  confirmHeld: () => Promise<void>,
  signal: AbortSignal,
): Promise<LoggerState> {
  const parts = new SpanParts(db, runId);
  const first = await read();
  // One log has all branches of the run, because its parts have takes.
  await program.open({ ...first, name: runId, key: first.origin }, runId);
  const sent = await program.sentParts();
  const note = (endedAt: Date | null) =>
    noteWritten(home, runId, destination, { name: runId, written: sent.size, traces: 0, endedAt, failure: null });

  async function send(name: string, part: Part, spanned: Spanned): Promise<void> {
    const made = makeSpans(db, spanned, part);
    for (let now = await made.next(); !now.done;) {
      const next = await made.next();
      signal.throwIfAborted();
      await confirmHeld();
      const refused = await program.sendSpans(name, now.value, next.done === true);
      if (refused !== null) report(`the logger otel of run ${runId}: ${refused}`);
      now = next;
    }
    sent.add(name);
    onWritten?.();
  }

  for (let idleSince = Date.now(); ;) {
    const log = await read();
    const due = await parts.due(log, sent);
    if (due.length > 0) {
      idleSince = Date.now();
      await sendAll(due);
    }
    const { endedAt, status } = log;
    if (endedAt !== null && due.length === 0) {
      await program.close(status, endedAt);
      return note(endedAt);
    }
    note(null);
    if (due.length > 0) continue;
    if (!follow || Date.now() - idleSince > follow.idleMs()) {
      await program.close('open', new Date());
      return note(null);
    }
    await sleep(follow.pollMs, signal);
  }

  async function sendAll(due: Part[]): Promise<void> {
    const spanned = await readSpanned(db, runId);
    const failures: string[] = [];
    let inARow = 0;
    for (const part of due) {
      const name = partName(runId, part);
      try {
        await send(name, part, spanned);
        inARow = 0;
      } catch (error) {
        signal.throwIfAborted();
        failures.push(`${name}: ${error instanceof Error ? error.message : String(error)}`);
        inARow += 1;
        if (inARow === MOST_FAILURES) break;
      }
    }
    const [failure] = failures;
    if (failure !== undefined)
      throw new Error(
        `spans are missing (${due.filter((part) => !sent.has(partName(runId, part))).length} parts): ${failure}`,
      );
  }
}

async function readSpanned(db: Database, runId: string): Promise<Spanned> {
  const [run] = await db.select().from(runs).where(eq(runs.id, runId));
  if (!run) throw await unknownRun(db, runId);
  const { model } = await readRun(db, runId);
  return { run, model };
}
