import { Worker } from 'node:worker_threads';
import { TrialgateError } from '../../core/errors.ts';
import type { OperateRun, StartRun } from '../../gateway/http/operate.ts';
import type { VerbReply } from '../../gateway/http/openapi/run-schemas.ts';
import type { Deployment } from '../config/schema.ts';
import type { Order, Said } from './verb-thread.ts';

/** Above this limit the thread runs out of memory alone, without the process. */
const HEAP_MIB = 512;
/** A start that is cut may have a sandbox to remove. */
const START_GRACE_MS = 5_000;

/**
 * Returns what does the page's verbs for a gateway. Each verb has a thread of its own, because loading Temporal's client takes seconds,
 * in which no call should wait, and memory, which a gateway needs only then.
 */
export function operateInThread(config: Deployment): { operateRun: OperateRun; startRun: StartRun } {
  return {
    operateRun: (runId, asked, signal) => inThread({ kind: 'verb', config, runId, asked }, signal),
    startRun: (asked, report, signal) =>
      inThread({ kind: 'start', config, asked }, signal, { report, graceMs: START_GRACE_MS }),
  };
}

type More = { report?: (line: string) => void; graceMs?: number };

async function inThread(order: Order, signal: AbortSignal, { report, graceMs = 0 }: More = {}): Promise<VerbReply> {
  signal.throwIfAborted();
  const worker = new Worker(new URL('./verb-thread.ts', import.meta.url), {
    workerData: order,
    resourceLimits: { maxOldGenerationSizeMb: HEAP_MIB },
  });
  const { promise, resolve, reject } = Promise.withResolvers<Exclude<Said, { line: string }>>();
  worker.on('message', (said: Said) => ('line' in said ? report?.(said.line) : resolve(said)));
  worker.once('error', reject);
  worker.once('exit', () => reject(signal.reason ?? new Error('the thread of the verb ended without an answer')));
  let timer: ReturnType<typeof setTimeout> | undefined;
  const end = (): void => {
    worker.postMessage('end');
    timer = setTimeout(() => void worker.terminate(), graceMs);
  };
  signal.addEventListener('abort', end);
  try {
    const ending = await promise;
    if ('reply' in ending) return ending.reply;
    signal.throwIfAborted();
    const { code, message, stack } = ending;
    throw Object.assign(code === null ? new Error(message) : new TrialgateError(code, message), { stack });
  } finally {
    clearTimeout(timer);
    signal.removeEventListener('abort', end);
    await worker.terminate();
  }
}
