import { eq } from 'drizzle-orm';
import { readRun } from '../../activities/run/read-run.ts';
import { unknownRun } from '../../activities/run/unknown-run.ts';
import { sleep } from '../../core/sleep.ts';
import type { Database } from '../../store/database.ts';
import { runs } from '../../store/schema.ts';
import type { LoggerProcess, TraceFailure } from './logger-process.ts';
import { noteWritten, type LoggerState } from './logger-state.ts';
import { makeSpans, type Spanned } from './make-spans.ts';
import type { Span } from './span.ts';
import { partName, SpanParts, type Part } from './span-parts.ts';
import type { LogOptions } from './write-log.ts';

/** After so many failures of the receiver in a row, the newest part tells if it takes others. If not, they wait for the next try. */
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

  /** Returns why a part could not be sent. All of its spans are made first, so that one which the record cannot give is not sent by half. */
  async function send(name: string, part: Part, spanned: Spanned): Promise<TraceFailure | null> {
    const made: Span[][] = [];
    try {
      for await (const spans of makeSpans(db, spanned, part)) made.push(spans);
    } catch (error) {
      return { reason: error instanceof Error ? error.message : String(error), isRefused: true };
    }
    for (const [index, spans] of made.entries()) {
      signal.throwIfAborted();
      await confirmHeld();
      const { failure, lost } = await program.sendSpans(name, spans, index === made.length - 1);
      if (failure !== null) return failure;
      if (lost !== null) report(`the logger otel of run ${runId}: ${lost}`);
    }
    sent.add(name);
    onWritten?.();
    return null;
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
    const left = [...due];
    let inARow = 0;
    while (left.length > 0) {
      const isProbe = inARow >= MOST_FAILURES;
      const part = isProbe ? left.pop() : left.shift();
      if (!part) break;
      const name = partName(runId, part);
      const failure = await send(name, part, spanned);
      signal.throwIfAborted();
      if (failure === null) inARow = 0;
      else {
        failures.push(`${name}: ${failure.reason}`);
        if (failure.isRefused) continue;
        if (isProbe) break;
        inARow += 1;
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
