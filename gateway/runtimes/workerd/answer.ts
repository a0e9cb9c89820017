import { endLongCalls, noteLongCalls } from '../../../store/queries/long-calls.ts';
import { retractCalls } from '../../../store/queries/retract-calls.ts';
import { findTrials } from '../../../store/queries/find-trials.ts';
import { readNewCalls } from '../../../store/queries/read-new-calls.ts';
import { readTurn } from '../../../store/queries/read-turn.ts';
import { readReplicas } from '../../../store/queries/read-replicas.ts';
import { recordCalls } from '../../../store/queries/record-calls.ts';
import { settleDeliveries } from '../../../store/queries/settle-deliveries.ts';
import { addRefusals } from '../../../store/queries/refusals.ts';
import { isRelayed, relayPath, relayWorkerOf } from '../../../core/engine-url.ts';
import { relayKey } from '../../../core/keys.ts';
import { createGateway } from '../../http/app.ts';
import { keyHeader } from '../../engines/engine-keys.ts';
import { EnginePool } from '../../engines/pool.ts';
import { errorResponse, toFailure } from '../../failure.ts';
import { withStoreRetry } from '../../with-store-retry.ts';
import { protocolOf } from '../../protocols/all.ts';
import { SingleCommit } from '../../record/single-commit.ts';
import { Deliveries } from '../../record/deliveries.ts';
import { LongCalls } from '../../record/long-calls.ts';
import { Refusals } from '../../http/refusals.ts';
import { SameCallsInStore } from '../../record/same-calls-in-store.ts';
import { Conversations } from '../../conversations/conversations.ts';
import { Trials } from '../../record/trials.ts';
import { ReadGate, READERS } from '../../http/read-gate.ts';
import { openRequestDatabase } from './database.ts';
import { FetchConnection } from './fetch-connection.ts';
import type { Isolate } from './isolate.ts';
import type { WorkerOptions } from './settings.ts';
import { checkDeployment } from './startup-checks.ts';

export type WorkerAnswer = {
  response: Promise<Response>;
  /** Resolves when nothing of the request is left: its reply has ended or was abandoned, its call is recorded, its connections are closed. */
  over: Promise<void>;
};

/** Creates the app of one request. It opens its own connections when they are needed. */
export function openApp(
  { databaseUrl, engines: urls, engineKeys, docs, relay, secret, adminKey, readKey, settings, log }: WorkerOptions,
  isolate: Isolate,
) {
  const db = openRequestDatabase(databaseUrl);
  const engines = new EnginePool({
    urls,
    log,
    kvWaitMs: settings.kvWaitMs,
    affinitySecret: settings.affinityHeaders ? secret : null,
    readRows: () => withStoreRetry({ settings }, () => readReplicas(db)),
    connect: (url) => {
      if (!relay || !isRelayed(url)) return new FetchConnection(url, undefined, keyHeader(engineKeys, url));
      const way = { relay, address: `https://relay${relayPath(relayWorkerOf(url))}` };
      return new FetchConnection(url, undefined, { authorization: `Bearer ${relayKey(secret)}` }, way);
    },
    memory: isolate.pool,
  });
  const recorder = new SingleCommit({
    commit: (calls) => recordCalls(db, calls),
    retract: (ids) => retractCalls(db, ids),
    waitMs: settings.storeWaitMs,
    log,
  });
  const sameCalls = new SameCallsInStore(db, log);
  const deliveries = new Deliveries({ settle: (delivered) => settleDeliveries(db, delivered), waitMs: 0, log });
  const longCalls = new LongCalls({
    note: (calls) => noteLongCalls(db, calls),
    end: (ids) => endLongCalls(db, ids),
    log,
  });
  const refusals = new Refusals({ write: (id, refused) => addRefusals(db, id, refused), log, everyMs: null });
  const app = createGateway({
    db,
    refusals,
    recorder,
    engines,
    secret,
    adminKey,
    readKey,
    settings,
    log,
    trials: new Trials((ids) => findTrials(db, ids)),
    conversations: new Conversations({
      readNew: (after) => withStoreRetry({ settings }, () => readNewCalls(db, after)),
      readTurn: (callId, known) => withStoreRetry({ settings }, () => readTurn(db, callId, known)),
      memory: isolate.conversations(settings.conversationMemoryBytes),
    }),
    counters: isolate.counters,
    relay: null,
    discovery: () => [],
    openCalls: isolate.openCalls,
    openBodies: isolate.openBodies,
    sameCalls,
    deliveries,
    longCalls,
    docsFile: async (name) => {
      const file = await docs?.fetch(`https://docs/${name}`);
      return file?.ok ? new Uint8Array(await file.arrayBuffer()) : null;
    },
    pageFile: async () => null,
    reader: db,
    readGate: new ReadGate(READERS),
    stopping: new AbortController().signal,
  });
  const close = async () => {
    await deliveries.close();
    await recorder.close();
    await longCalls.close();
    await sameCalls.close();
    await refusals.close();
    await db.$client.end();
  };
  return { app, db, close };
}

export function answer(request: Request, options: WorkerOptions, isolate: Isolate): WorkerAnswer {
  const { app, db, close } = openApp(options, isolate);
  const delivered = Promise.withResolvers<boolean>();
  const answered = checkDeployment(db, options.secret, isolate)
    .then(
      () => app.fetch(request, { delivered: () => delivered.promise }),
      (error: unknown) => errorResponse(toFailure(error), protocolOf(new URL(request.url).pathname)),
    )
    .then((response) => withEnd(response, request.signal));
  return {
    response: answered.then(({ response }) => response),
    over: answered
      .then(({ ended }) => ended)
      .then(delivered.resolve, () => delivered.resolve(false))
      .then(close),
  };
}

/** A class of workerd's own, beside the standard one. */
declare const IdentityTransformStream: new () => TransformStream<Uint8Array, Uint8Array>;

/** Returns the same response and a promise that resolves when the body has ended or was abandoned: true if the agent received all of it. */
function withEnd(response: Response, agent: AbortSignal): { response: Response; ended: Promise<boolean> } {
  if (!response.body) return { response, ended: Promise.resolve(true) };
  const { readable, writable } = new IdentityTransformStream();
  return {
    response: new Response(readable, response),
    ended: writeToAgent(response.body.getReader(), writable.getWriter(), agent),
  };
}

const LAST = new TextEncoder().encode('\n');

async function writeToAgent(
  body: ReadableStreamDefaultReader<Uint8Array>,
  agent: WritableStreamDefaultWriter<Uint8Array>,
  signal: AbortSignal,
): Promise<boolean> {
  // If the agent leaves before its response begins, nobody reads the body and the write would wait for ever.
  const abortWrite = () => void agent.abort(signal.reason).catch(() => {});
  if (signal.aborted) abortWrite();
  signal.addEventListener('abort', abortWrite);
  agent.closed.catch((error: unknown) => body.cancel(error)).catch(() => {});
  try {
    for (let part = await body.read(); !part.done; part = await body.read()) await agent.write(part.value);
    await agent.close();
    return true;
  } catch (error) {
    // workerd drops what it has not yet written of a body that breaks off. It takes a part when the one before is written, so only this
    // extra part is lost.
    await agent.write(LAST).catch(() => {});
    await Promise.allSettled([agent.abort(error), body.cancel(error)]);
    return false;
  }
}
