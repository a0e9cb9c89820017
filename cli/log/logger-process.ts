import { spawn, type ChildProcessWithoutNullStreams } from 'node:child_process';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { z } from 'zod';
import { toStorable } from '../../core/json.ts';
import { raceAbort } from '../../core/race-abort.ts';
import { REPOSITORY } from '../../core/repository.ts';
import { loggerPython } from '../install/loggers.ts';
import { environment } from '../supervisor/component.ts';
import type { Destination } from './destination.ts';
import { keyOf, type Entry, type RunLog } from './logger-entries.ts';
import type { Span } from './span.ts';
import type { TrialTrace } from './trial-trace.ts';

const answer = z.object({
  error: z.string().optional(),
  written: z.array(z.tuple([z.enum(['training', 'val']), z.number(), z.number()])).optional(),
  /** Why a trace, or the reading of what there is, failed. The program goes on. */
  failure: z.string().optional(),
  /** True if it failed because of this one trace or part: the store may take others. */
  refused: z.boolean().default(false),
  traced: z.array(z.string()).optional(),
  sent: z.array(z.string()).optional(),
  /** The spans of a part that the receiver refused for good, and why. */
  rejected: z.number().default(0),
  reason: z.string().default(''),
});
type Answer = z.output<typeof answer>;

/** Why a trace, or a part of spans, was not written, and if that is because of this one: others may be taken. */
export type TraceFailure = { reason: string; isRefused: boolean };

/** The state of a run when its log is closed: its end, `superseded` after a redo began another branch, or `open` when more may come. */
export type Closing = RunLog['status'] | 'superseded' | 'open';

const END_MS = 10_000;
const STOP_MS = 3_000;
const LAST_LINES = 15;

/** Libraries that report on their user to their makers do so only if the user says so. */
const REPORTS: NodeJS.ProcessEnv = { MLFLOW_DISABLE_TELEMETRY: 'true', WANDB_ERROR_REPORTING: 'false' };

/** One logger's Python program (`loggers/trialgate_loggers`). */
export class LoggerProcess {
  /** The entries that the logger has. */
  written = new Set<string>();
  readonly #child: ChildProcessWithoutNullStreams;
  readonly #answers: AsyncIterator<string>;
  readonly #ended: Promise<void>;
  readonly #opening: { logger: string; settings: object };
  readonly #signal: AbortSignal;
  #opened: string | null = null;
  #printed: string[] = [];

  private constructor(python: string, { logger, settings }: Destination, signal: AbortSignal) {
    this.#signal = signal;
    this.#opening = { logger, settings };
    const reports = Object.entries(REPORTS).filter(([name]) => process.env[name] === undefined);
    this.#child = spawn(python, ['-m', 'trialgate_loggers'], {
      env: environment({
        ...Object.fromEntries(reports),
        PYTHONPATH: join(REPOSITORY, 'loggers'),
        PYTHONUNBUFFERED: '1',
        TRIALGATE_LOGGER_PARENT: String(process.pid),
      }),
      cwd: REPOSITORY,
      // Ctrl-C is for this process, which then ends the program in order.
      detached: true,
    });
    // Processes that it started may keep its output open. Then `close` would never come.
    this.#ended = new Promise((resolve) => {
      this.#child.once('exit', () => resolve());
      this.#child.once('error', ({ message }) => {
        this.#printed = [`the program of the logger cannot be started: ${message}`];
        resolve();
      });
    });
    // A program that has ended reads nothing any more. The missing answer tells.
    this.#child.stdin.on('error', () => {});
    this.#answers = createInterface({ input: this.#child.stdout })[Symbol.asyncIterator]();
    createInterface({ input: this.#child.stderr }).on('line', (line) => {
      this.#printed = [...this.#printed, line].slice(-LAST_LINES);
    });
  }

  /**
   * @param signal ends the wait for each answer
   * @throws TrialgateError when the logger's library is not installed
   */
  static async start(destination: Destination, signal: AbortSignal): Promise<LoggerProcess> {
    return new LoggerProcess(await loggerPython(destination.logger), destination, signal);
  }

  /** Opens the run in the logger's store. @throws Error with the logger's own message */
  async open(log: RunLog, runId: string): Promise<void> {
    const run = {
      name: log.name,
      key: log.key,
      origin: log.origin,
      group: runId,
      config: flatten(withoutEnvironments(log.config)),
      tags: log.forkedFrom === null ? {} : { forked_from: log.forkedFrom },
      started: log.createdAt.getTime() / 1000,
    };
    const { written = [] } = await this.#ask({ ...this.#opening, run });
    this.#opened = log.name;
    this.written = new Set(written.map(keyOf));
  }

  /** The name of the run that is open. */
  get opened(): string | null {
    return this.#opened;
  }

  async write(entries: readonly Entry[]): Promise<void> {
    await this.#ask({ entries });
    for (const { id } of entries) this.written.add(keyOf(id));
  }

  /** Returns the trials of an entry of which the logger has traces; or why this cannot be told. */
  async traced(entry: string): Promise<Set<string> | TraceFailure> {
    const answered = await this.#ask({ traced: entry });
    return failureOf(answered) ?? new Set(answered.traced);
  }

  /** Writes a trial as a trace. Returns null, or why it failed. */
  async trace(entry: string, trial: TrialTrace): Promise<TraceFailure | null> {
    return failureOf(await this.#ask({ entry, trial }));
  }

  /** Returns the parts of the run that were sent as spans. */
  async sentParts(): Promise<Set<string>> {
    const answered = await this.#ask({ sent: true });
    if (answered.failure !== undefined) throw new Error(answered.failure);
    return new Set(answered.sent);
  }

  /**
   * Sends spans of a part of the run, which counts as sent with its last ones. Returns why they could not be sent, or what was refused for
   * good.
   */
  async sendSpans(
    part: string,
    spans: readonly Span[],
    isLast: boolean,
  ): Promise<{ failure: TraceFailure | null; lost: string | null }> {
    const answered = await this.#ask({ part, spans, last: isLast });
    const { rejected, reason } = answered;
    const lost = rejected === 0 ? null : `${rejected} spans of ${part} were refused, and are not sent again: ${reason}`;
    return { failure: failureOf(answered), lost };
  }

  /** Waits until the logger has kept everything, and closes the run. */
  async close(status: Closing, at: Date): Promise<void> {
    await this.#ask({ close: status, at: at.getTime() / 1000 });
    this.#opened = null;
  }

  /** Ends the program, and what it started, within some seconds. What it did not keep is written by the next one. */
  async end(): Promise<void> {
    this.#child.stdin.end();
    const late = setTimeout(() => this.#kill(), this.#signal.aborted ? STOP_MS : END_MS);
    await this.#ended;
    clearTimeout(late);
    this.#kill();
    this.#child.stdout.destroy();
    this.#child.stderr.destroy();
  }

  /** Kills the group of the program. */
  #kill(): void {
    if (this.#child.pid === undefined) return;
    try {
      process.kill(-this.#child.pid, 'SIGKILL');
    } catch {
      // It has ended.
    }
  }

  async #ask(line: object): Promise<Answer> {
    // Texts of a trial may have what neither Python nor a database takes.
    this.#child.stdin.write(`${toStorable(line)}\n`);
    const { done, value } = await raceAbort(this.#answers.next(), this.#signal);
    const said = done
      ? { error: this.#printed.at(-1) ?? 'the program of the logger ended', refused: false, rejected: 0, reason: '' }
      : answer.parse(JSON.parse(value));
    if (said.error !== undefined) throw new Error(said.error);
    return said;
  }
}

const failureOf = ({ failure, refused }: Answer): TraceFailure | null =>
  failure === undefined ? null : { reason: failure, isRefused: refused };

/** Returns a run file without the environments of its programs, which may have passwords. */
const withoutEnvironments = (config: unknown): unknown =>
  JSON.parse(JSON.stringify(config, (key, value: unknown) => (key === 'env' ? undefined : value)));

type Flat = Record<string, string | number | boolean>;

/** Returns a run file's settings by path, such as `optim.lr`. Lists are JSON. */
function flatten(value: unknown, path = ''): Flat {
  if (value === null || value === undefined) return {};
  if (typeof value === 'object' && !Array.isArray(value))
    return Object.assign(
      {},
      ...Object.entries(value).map(([key, each]) => flatten(each, path ? `${path}.${key}` : key)),
    );
  const isPlain = typeof value === 'string' || typeof value === 'number' || typeof value === 'boolean';
  return { [path]: isPlain ? value : JSON.stringify(value) };
}
