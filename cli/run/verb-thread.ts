import { parentPort, workerData } from 'node:worker_threads';
import { TrialgateError, type ErrorCode } from '../../core/errors.ts';
import { isTransient } from '../../core/transient.ts';
import type { RunStart, RunVerb, VerbReply } from '../../gateway/http/openapi/run-schemas.ts';
import type { Deployment } from '../config/schema.ts';

export type Order = { config: Deployment } & (
  { kind: 'verb'; runId: string; asked: RunVerb } | { kind: 'start'; asked: RunStart }
);
/** The `code` of a failure is null when it is none that a caller is to tell apart. `stack` is for the log. */
export type Report = { reply: VerbReply } | { code: ErrorCode | null; message: string; stack: string };
/** What the thread says: any number of lines on what it does, and then how it went. */
export type Said = { line: string } | Report;

const ended = new AbortController();

/** Does what it is ordered and reports how it went. The classes of errors do not go from thread to thread. */
async function work(): Promise<Report> {
  const order: Order = workerData;
  try {
    return { reply: await doOrder(order) };
  } catch (error) {
    const stack = stackOf(error);
    if (error instanceof TrialgateError) return { code: error.code, message: error.message, stack };
    if (isTransient(error)) return { code: 'store_unavailable', message: UNKNOWN[order.kind], stack };
    return { code: null, message: error instanceof Error ? error.message : String(error), stack };
  }
}

async function doOrder(order: Order): Promise<VerbReply> {
  if (order.kind === 'verb') {
    const { doVerb } = await import('./do-verb.ts');
    return doVerb(order.config, order.runId, order.asked);
  }
  const { startSent } = await import('./start-sent.ts');
  return startSent(order.config, order.asked, (line) => parentPort?.postMessage({ line }), ended.signal);
}

const UNKNOWN = {
  verb: 'the database cannot be reached, so it is not known whether the run followed: look at its status before you ask again',
  start:
    'the database cannot be reached, so it is not known whether the run started: look for it in the list of runs before you start it again',
};

const stackOf = (error: unknown): string =>
  error instanceof Error
    ? `${error.stack}${error.cause === undefined ? '' : `; because of ${stackOf(error.cause)}`}`
    : String(error);

parentPort?.once('message', () => ended.abort());
parentPort?.postMessage(await work());
