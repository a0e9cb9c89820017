import { setImmediate } from 'node:timers/promises';
import { openDatabase, type Database } from '../store/database.ts';
import { TrialgateError } from '../core/errors.ts';
import { retractCalls } from '../store/queries/retract-calls.ts';
import { migrate } from '../store/queries/migrate.ts';
import { findTrials } from '../store/queries/find-trials.ts';
import { readNewCalls } from '../store/queries/read-new-calls.ts';
import { recordCalls } from '../store/queries/record-calls.ts';
import { addRefusals } from '../store/queries/refusals.ts';
import { readTurn } from '../store/queries/read-turn.ts';
import { readReplicas } from '../store/queries/read-replicas.ts';
import { registerReplicas } from '../store/queries/register-replicas.ts';
import { requireSecret } from '../store/queries/require-secret.ts';
import { settleDeliveries } from '../store/queries/settle-deliveries.ts';
import { createGateway } from './app.ts';
import { Counters, type Snapshot } from './counters.ts';
import { EnginePool } from './engines/pool.ts';
import { docsFile } from './node/docs-file.ts';
import { UndiciConnection } from './node/engine-connection.ts';
import { HeavyLane } from './node/heavy-lane.ts';
import { InFlight } from './in-flight.ts';
import type { LaneEnd } from './node/lane-end.ts';
import { listen, stopServer } from './node/server.ts';
import { OpenBodies } from './open-bodies.ts';
import { isLoopback } from './loopback.ts';
import { withStoreRetry } from './with-store-retry.ts';
import { toFailure } from './failure.ts';
import { GroupCommit } from './recorder/group-commit.ts';
import { Deliveries } from './retry/deliveries.ts';
import { Refusals } from './refusals.ts';
import { SameCallsHere } from './retry/same-calls.ts';
import { DEFAULT_SETTINGS, type GatewaySettings } from './settings.ts';
import { sleep } from './sleep.ts';
import { ConversationMemory } from './token-in/conversation-memory.ts';
import { Conversations } from './token-in/conversations.ts';
import { Trials } from './trials.ts';

export type NodeGatewayOptions = {
  host: string;
  /** 0 takes a free port. */
  port: number;
  /** Engines of the deployment: `http://host:port` or `unix:/path/to.sock`. */
  engines: readonly string[];
  databaseUrl: string;
  adminKey: string | null;
  secret: string;
  settings?: Partial<GatewaySettings>;
  log?: (line: string) => void;
  /** How long calls under way may continue after `close`. */
  drainMs?: number;
  /** How long a request's headers may take. */
  headersTimeoutMs?: number;
  /** The module that runs the heavy thread. If absent, the thread loads the gateway's modules one by one. */
  heavyThread?: URL;
  /** Set on the heavy thread, which answers only the other thread and does not prepare the store. */
  lane?: LaneEnd;
};

export type NodeGateway = {
  url: string;
  close: () => Promise<void>;
  /** The routes that it serves, in Hono's patterns. */
  routes: readonly { method: string; path: string }[];
};

/**
 * The few prepared statements need the same plan for all values, and planning costs more than running them. A commit is on disk when it is
 * reported, whatever the default of the role or database (invariant 1).
 */
const SESSION = '-c plan_cache_mode=force_generic_plan -c synchronous_commit=on';

const START_WAIT_MS = 10_000;
/** If this process dies, the store counts replies delivered within this time before as undelivered. */
const DELIVERIES_MS = 100;
const REFUSALS_MS = 500;

/** Serves the gateway on Node, with undici towards the engines and group commit towards PostgreSQL. */
export async function startGateway(options: NodeGatewayOptions): Promise<NodeGateway & { snapshot: () => Snapshot }> {
  const { host, adminKey, secret, engines: urls, log = () => {}, drainMs = 10_000 } = options;
  if (adminKey === null && !isLoopback(host)) {
    throw new TrialgateError(
      'bad_input',
      `without an admin key the gateway listens on loopback only, not on ${host}: set --admin-key`,
    );
  }
  const settings = { ...DEFAULT_SETTINGS, ...options.settings };
  const { lane: own } = options;
  const lane = own === undefined ? new HeavyLane({ ...options, drainMs }) : null;
  const db = openDatabase(options.databaseUrl, { settings: SESSION, ...(lane ? {} : { maxConnections: 4 }) });
  const stopping = new AbortController();
  const engines = new EnginePool({
    urls,
    log,
    readRows: () => withStoreRetry({ settings }, () => readReplicas(db)),
    connect: (url) => new UndiciConnection(url),
  });
  const recorder = new GroupCommit({
    commit: (calls) => recordCalls(db, calls),
    retract: (ids) => retractCalls(db, ids),
    waitMs: settings.storeWaitMs,
    log,
  });
  const deliveries = new Deliveries({
    settle: (delivered) => settleDeliveries(db, delivered),
    waitMs: DELIVERIES_MS,
    log,
  });
  const trials = new Trials(
    (ids) => findTrials(db, ids),
    () => setImmediate(),
  );
  const refusals = new Refusals({ write: (id, refused) => addRefusals(db, id, refused), log, everyMs: REFUSALS_MS });
  const counters = new Counters();
  const conversations = new Conversations({
    readNew: (after) => readNewCalls(db, after),
    readTurn: (callId, known) => readTurn(db, callId, known),
    memory: new ConversationMemory(settings.conversationMemoryBytes, counters.conversations),
  });
  const otherThread = lane ? () => lane.snapshot() : undefined;
  const app = createGateway({
    db,
    trials,
    refusals,
    recorder,
    engines,
    conversations,
    counters,
    otherThread,
    openCalls: new InFlight(),
    openBodies: new OpenBodies(),
    sameCalls: new SameCallsHere(),
    deliveries,
    secret,
    adminKey,
    settings,
    log,
    docsFile,
    stopping: stopping.signal,
  });
  const end = async () => {
    await engines.close();
    // A connection whose server vanished without closing it would keep the process from ending.
    await Promise.race([db.$client.end(), sleep(2_000)]);
  };
  try {
    if (lane) await prepareStore(settings, db, options);
    const server = await listen(app, {
      host,
      port: options.port,
      headersTimeoutMs: options.headersTimeoutMs ?? 60_000,
      lane,
      own,
    });
    const address = server.address();
    const port = typeof address === 'object' && address ? address.port : options.port;
    const close = async () => {
      await Promise.all([stopServer(server, stopping, drainMs), lane?.close()]);
      await Promise.race([
        Promise.all([recorder.close().then(() => deliveries.close()), refusals.close()]),
        sleep(settings.storeWaitMs),
      ]);
      await end();
    };
    return {
      url: `http://${host.includes(':') && !host.startsWith('[') ? `[${host}]` : host}:${port}`,
      close,
      routes: app.routes,
      snapshot: () => ({ counters, engines: engines.loads }),
    };
  } catch (error) {
    await end();
    throw error;
  }
}

async function prepareStore(
  settings: GatewaySettings,
  db: Database,
  { databaseUrl, engines, secret }: NodeGatewayOptions,
): Promise<void> {
  // At start no agent waits yet, so PostgreSQL gets more time on a machine that starts everything at once.
  const starting = { settings: { storeWaitMs: Math.max(settings.storeWaitMs, START_WAIT_MS) } };
  try {
    await withStoreRetry(starting, () => migrate(databaseUrl));
    await withStoreRetry(starting, () => requireSecret(db, secret));
    await withStoreRetry(starting, () => registerReplicas(db, engines));
  } catch (error) {
    if (toFailure(error).code !== 'store_unavailable') throw error;
    throw new TrialgateError(
      'store_unavailable',
      'PostgreSQL does not answer, or takes no writes: start it, or correct --database-url',
      { cause: error },
    );
  }
}
