import { Worker } from 'node:worker_threads';
import { TrialgateError } from '../../core/errors.ts';
import type { OperateRun } from '../../gateway/http/operate.ts';
import type { Deployment } from '../config/schema.ts';
import type { Order, Report } from './verb-thread.ts';

/** Above this limit the thread runs out of memory alone, without the process. */
const HEAP_MIB = 512;

/**
 * Returns what does the page's verbs for a gateway. Each verb has a thread of its own, because loading Temporal's client takes seconds,
 * in which no call should wait, and memory, which a gateway needs only then.
 */
export function operateInThread(config: Deployment): OperateRun {
  return async (runId, asked, signal) => {
    signal.throwIfAborted();
    const order: Order = { config, runId, asked };
    const worker = new Worker(new URL('./verb-thread.ts', import.meta.url), {
      workerData: order,
      resourceLimits: { maxOldGenerationSizeMb: HEAP_MIB },
    });
    const { promise, resolve, reject } = Promise.withResolvers<Report>();
    worker.once('message', (report: Report) => resolve(report));
    worker.once('error', reject);
    worker.once('exit', () => reject(signal.reason ?? new Error('the thread of the verb ended without an answer')));
    const end = (): void => void worker.terminate();
    signal.addEventListener('abort', end);
    try {
      const report = await promise;
      if ('reply' in report) return report.reply;
      const { code, message, stack } = report;
      throw Object.assign(code === null ? new Error(message) : new TrialgateError(code, message), { stack });
    } finally {
      signal.removeEventListener('abort', end);
      await worker.terminate();
    }
  };
}
