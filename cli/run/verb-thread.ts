import { parentPort, workerData } from 'node:worker_threads';
import { TrialgateError, type ErrorCode } from '../../core/errors.ts';
import { isTransient } from '../../core/transient.ts';
import type { RunVerb, VerbReply } from '../../gateway/http/openapi/run-schemas.ts';
import type { Deployment } from '../config/schema.ts';
import { doVerb } from './do-verb.ts';

export type Order = { config: Deployment; runId: string; asked: RunVerb };
/** The `code` of a failure is null when it is none that a caller is to tell apart. `stack` is for the log. */
export type Report = { reply: VerbReply } | { code: ErrorCode | null; message: string; stack: string };

/** Does one verb and reports how it went. The classes of errors do not go from thread to thread. */
async function work(): Promise<Report> {
  const { config, runId, asked }: Order = workerData;
  try {
    return { reply: await doVerb(config, runId, asked) };
  } catch (error) {
    const stack = stackOf(error);
    if (error instanceof TrialgateError) return { code: error.code, message: error.message, stack };
    if (isTransient(error)) return { code: 'store_unavailable', message: UNKNOWN, stack };
    return { code: null, message: error instanceof Error ? error.message : String(error), stack };
  }
}

const UNKNOWN =
  'the database cannot be reached, so it is not known whether the run followed: look at its status before you ask again';

const stackOf = (error: unknown): string =>
  error instanceof Error
    ? `${error.stack}${error.cause === undefined ? '' : `; because of ${stackOf(error.cause)}`}`
    : String(error);

parentPort?.postMessage(await work());
