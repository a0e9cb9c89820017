import { parentPort, workerData } from 'node:worker_threads';
import { TrialgateError, type ErrorCode } from '../../core/errors.ts';
import type { RunVerb, VerbReply } from '../../gateway/http/openapi/run-schemas.ts';
import type { Deployment } from '../config/schema.ts';
import { doVerb } from './do-verb.ts';

export type Order = { config: Deployment; runId: string; asked: RunVerb };
/** The `code` of a failure is null when it is none that a caller is to tell apart. */
export type Report = { reply: VerbReply } | { code: ErrorCode | null; message: string };

/** Does one verb and reports how it went. The classes of errors do not go from thread to thread. */
async function work(): Promise<Report> {
  const { config, runId, asked }: Order = workerData;
  try {
    return { reply: await doVerb(config, runId, asked) };
  } catch (error) {
    const code = error instanceof TrialgateError ? error.code : null;
    return { code, message: error instanceof Error ? error.message || error.name : String(error) };
  }
}

parentPort?.postMessage(await work());
