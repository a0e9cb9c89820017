/** Reads many streams at once in its own process and times each token of the fake engine by its stamp. */
import { setTimeout as pause } from 'node:timers/promises';
import { Pool, type Dispatcher } from 'undici';
import { between, stampNow, STAMP_DIGITS } from '../engine/clock.ts';
import { body, FORMS, pathOf, question } from './bodies.ts';
import type { Quantiles, StreamsJob, StreamsResult } from './streams.ts';

const PATIENCE_MS = 30_000;
const EVENT_END = Buffer.from('\n\n');
const QUOTE = 34;

process.once(
  'message',
  (job) => void run(job as StreamsJob).then((result) => process.send?.(result, () => process.exit())),
);
process.on('disconnect', () => process.exit());

async function run(job: StreamsJob): Promise<StreamsResult> {
  const pool = new Pool(job.url, { connections: job.streams, headersTimeout: PATIENCE_MS, bodyTimeout: PATIENCE_MS });
  const all = new Times(job);
  const begun = performance.now();
  const lane = async (number: number): Promise<void> => {
    await pause((job.spreadMs * number) / job.streams);
    const goesOn = (turn: number) =>
      job.rounds === undefined ? performance.now() - begun < job.forMs : turn < job.rounds;
    for (let turn = 0; goesOn(turn); turn++) await stream(pool, job, all, number + turn * job.streams);
  };
  await Promise.all(Array.from({ length: job.streams }, (_, number) => lane(number)));
  await pool.destroy();
  return all.result();
}

class Times {
  readonly counts = { begun: 0, complete: 0, incomplete: 0, refused: 0, timeouts: 0, broken: 0 };
  readonly #delays: number[] = [];
  readonly #firsts: number[] = [];
  readonly #reasons = new Map<string, number>();
  readonly #from: number;
  readonly #to: number;
  #open = 0;
  #mostOpen = 0;

  constructor({ warmMs, forMs }: StreamsJob) {
    this.#from = performance.now() + warmMs;
    this.#to = this.#from + forMs - warmMs;
  }

  opened(): void {
    this.#open += 1;
    this.#mostOpen = Math.max(this.#mostOpen, this.#open);
  }

  closed(how: Exclude<keyof Times['counts'], 'begun'>, reason?: string): void {
    this.#open -= 1;
    this.counts[how] += 1;
    if (reason && this.#reasons.size < 10) this.#reasons.set(reason, (this.#reasons.get(reason) ?? 0) + 1);
  }

  token(delay: number, first: number | null): void {
    const now = performance.now();
    if (now < this.#from || now > this.#to) return;
    this.#delays.push(delay);
    if (first !== null) this.#firsts.push(first);
  }

  result(): StreamsResult {
    const tokensPerSecond = (this.#delays.length * 1000) / (this.#to - this.#from);
    const reasons = [...this.#reasons].map(([reason, count]) => `${count} × ${reason}`);
    return {
      ...this.counts,
      open: this.#mostOpen,
      tokensPerSecond,
      delayMs: quantiles(this.#delays),
      firstMs: quantiles(this.#firsts),
      reasons,
    };
  }
}

function quantiles(micros: number[]): Quantiles {
  const sorted = Float64Array.from(micros).sort();
  const at = (share: number) => (sorted[Math.floor(share * (sorted.length - 1))] ?? 0) / 1000;
  return { count: sorted.length, p50: at(0.5), p99: at(0.99), max: at(1) };
}

/** Reads one stream. Resolves when it has ended in any way. */
function stream(
  pool: Pool,
  { lines, tokens, direct, protocol }: StreamsJob,
  all: Times,
  number: number,
): Promise<void> {
  const line = lines[number % lines.length];
  if (!line) throw new Error('no trial');
  const form = FORMS[protocol];
  const mark = Buffer.from(form.text);
  const text = body(question(line.name, number, form), { stream: true, tokens, direct }, form);
  const headers = { authorization: `Bearer ${line.key}`, 'content-type': 'application/json' };
  all.counts.begun += 1;
  all.opened();
  const sent = Number(stampNow());
  let status = 0;
  let came = 0;
  let rest: Buffer | null = null;
  let last = '';

  const read = (chunk: Buffer) => {
    const bytes: Buffer = rest ? Buffer.concat([rest, chunk]) : chunk;
    let from = 0;
    for (let end = bytes.indexOf(EVENT_END); end >= 0; end = bytes.indexOf(EVENT_END, from)) {
      const at = bytes.indexOf(mark, from);
      if (!(at >= 0 && at < end && time(bytes, at + mark.length)))
        last = bytes.toString('latin1', from, Math.min(end, from + form.end.length));
      from = end + EVENT_END.length;
    }
    rest = from < bytes.length ? bytes.subarray(from) : null;
  };
  /** Returns false for a text without a stamp. */
  const time = (bytes: Buffer, at: number): boolean => {
    const stamps = bytes.toString('latin1', at, bytes.indexOf(QUOTE, at));
    if (stamps.length < STAMP_DIGITS) return false;
    came += 1;
    const now = Number(stampNow());
    const written = Number(stamps.slice(-STAMP_DIGITS));
    const received = stamps.length > STAMP_DIGITS ? Number(stamps.slice(0, STAMP_DIGITS)) : null;
    all.token(between(written, now), received === null ? null : between(sent, now) - between(received, written));
    return true;
  };

  return new Promise((resolve) => {
    const handler: Dispatcher.DispatchHandler = {
      onRequestStart: () => {},
      onResponseStart: (_, code) => void (status = code),
      onResponseData: (_, chunk) => read(chunk),
      onResponseEnd: () => {
        const isWhole = came === tokens && last === form.end;
        if (status !== 200) all.closed('refused', `status ${status}`);
        else if (isWhole) all.closed('complete');
        else all.closed('incomplete', `${came} tokens, then ${last}`);
        resolve();
      },
      onResponseError: (_, error) => {
        const code = 'code' in error ? String(error.code) : error.message;
        all.closed(code.includes('TIMEOUT') ? 'timeouts' : 'broken', code);
        resolve();
      },
    };
    pool.dispatch({ method: 'POST', path: pathOf(line.path, form, true), headers, body: text }, handler);
  });
}
