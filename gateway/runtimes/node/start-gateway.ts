import { networkInterfaces } from 'node:os';
import { setImmediate } from 'node:timers/promises';
import { openDatabase, type Database } from '../../../store/database.ts';
import type { Log } from '../../../core/log.ts';
import { TrialgateError } from '../../../core/errors.ts';
import { endLongCalls, noteLongCalls } from '../../../store/queries/long-calls.ts';
import { retractCalls } from '../../../store/queries/retract-calls.ts';
import { migrate } from '../../../store/queries/migrate.ts';
import { findTrials } from '../../../store/queries/find-trials.ts';
import { readNewCalls } from '../../../store/queries/read-new-calls.ts';
import { recordCalls } from '../../../store/queries/record-calls.ts';
import { addRefusals } from '../../../store/queries/refusals.ts';
import { readTurn } from '../../../store/queries/read-turn.ts';
import { readReplicas } from '../../../store/queries/read-replicas.ts';
import { requireSecret } from '../../../store/queries/require-secret.ts';
import { settleDeliveries } from '../../../store/queries/settle-deliveries.ts';
import { ReadGate, READERS } from '../../http/read-gate.ts';
import type { OperateRun, StartRun } from '../../http/operate.ts';
import { RunEvents } from '../../http/run-events.ts';
import { readRunMark } from '../../../store/queries/read-run-mark.ts';
import { createGateway } from '../../http/app.ts';
import { requireTwoKeys } from '../../http/auth.ts';
import { Counters, type Snapshot } from '../../calls/counters.ts';
import { keyHeader, type EngineKeys } from '../../engines/engine-keys.ts';
import { EnginePool } from '../../engines/pool.ts';
import type { DiscoveryOptions } from './discovery/discovery.ts';
import { Membership } from './discovery/membership.ts';
import { CheckpointFiles } from './checkpoint-files.ts';
import { docsFile } from './docs-file.ts';
import { pageFileIn } from './page-file.ts';
import { UndiciConnection } from './engine-connection.ts';
import { HeavyLane } from './heavy-lane.ts';
import { InFlight } from '../../engines/in-flight.ts';
import type { LaneEnd } from './lane-end.ts';
import { listen, stopServer } from './server.ts';
import { OpenBodies } from '../../http/bodies/open-bodies.ts';
import { relayKey } from '../../../core/keys.ts';
import { HandedConnection } from './handed-connection.ts';
import { WorkerSockets } from './worker-sockets.ts';
import { RelayWorkers } from './relay-workers.ts';
import { isRelayed, RELAY } from '../../../core/engine-url.ts';
import { isLoopback } from '../../http/loopback.ts';
import { withStoreRetry } from '../../with-store-retry.ts';
import { toFailure } from '../../failure.ts';
import { GroupCommit } from '../../record/group-commit.ts';
import { Deliveries } from '../../record/deliveries.ts';
import { LongCalls } from '../../record/long-calls.ts';
import { Refusals } from '../../http/refusals.ts';
import { SameCallsHere } from '../../record/same-calls.ts';
import { DEFAULT_SETTINGS, type GatewaySettings } from '../../settings.ts';
import { httpUrl, reachableAt } from '../../../core/reachable-at.ts';
import { sleep } from '../../../core/sleep.ts';
import { ConversationMemory } from '../../conversations/conversation-memory.ts';
import { Conversations } from '../../conversations/conversations.ts';
import { Trials } from '../../record/trials.ts';
import { UnderWay } from './under-way.ts';

export type NodeGatewayOptions = DiscoveryOptions & {
  host: string;
  /** 0 takes a free port. */
  port: number;
  /** The keys of `openai+` engines. */
  engineKeys?: EngineKeys;
  databaseUrl: string;
  adminKey: string | null;
  /** The key that opens what only reads. */
  readKey?: string | null;
  secret: string;
  settings?: Partial<GatewaySettings>;
  log?: Log;
  /** Calls under way may continue for this long after `close`. */
  drainMs?: number;
  /** A request's headers may take this long to arrive. */
  headersTimeoutMs?: number;
  /** The module that runs the heavy thread. If absent, the thread loads the gateway's modules one by one. */
  heavyThread?: URL;
  /** Set on the heavy thread, which answers only the other thread and does not prepare the store. */
  lane?: LaneEnd;
  /** The address of the other thread, through which the heavy thread reaches engines behind relay workers. */
  relayVia?: string;
  /** The address at which other gateways reach this one, if it is not its own. */
  relayAddress?: string | undefined;
  /** The folder of the built page on runs; absent: this gateway has no page. */
  page?: string;
  /** The deployment's folder of checkpoints, of which relay workers fetch what their engines load; absent: they fetch none. */
  checkpoints?: string;
  /** Changes runs for the page; absent: this gateway changes none. */
  operateRun?: OperateRun;
  /** Starts runs for the page; absent: this gateway starts none. */
  startRun?: StartRun;
  /** The time for which calls under way wait for a relay worker whose connection was cut. */
  relayGraceMs?: number;
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

/** Connections for what a person looks at write nothing, and no statement on them takes longer: less than the gateway waits for the store, so that it can say why there is no answer. */
const READER = '-c default_transaction_read_only=on -c statement_timeout=5s';

const START_WAIT_MS = 10_000;
/** If this process dies, the store counts replies delivered within this time before as undelivered. */
const DELIVERIES_MS = 100;
const REFUSALS_MS = 500;

/** Serves the gateway on Node, with undici towards the engines and group commit towards PostgreSQL. */
export async function startGateway(options: NodeGatewayOptions): Promise<NodeGateway & { snapshot: () => Snapshot }> {
  const { host, adminKey, readKey = null, secret, engines: urls, log = () => {}, drainMs = 10_000 } = options;
  requireTwoKeys(adminKey, readKey);
  if (adminKey === null && !isLoopback(host)) {
    throw new TrialgateError(
      'bad_input',
      `without an admin key the gateway listens on loopback only, not on ${host}: set --admin-key`,
    );
  }
  const settings = { ...DEFAULT_SETTINGS, ...options.settings };
  const { lane: own } = options;
  // No function goes to another thread.
  const lane =
    own === undefined ? new HeavyLane({ ...options, operateRun: undefined, startRun: undefined, drainMs }) : null;
  const db = openDatabase(options.databaseUrl, { settings: SESSION, ...(lane ? {} : { maxConnections: 4 }) });
  // It connects when it is first asked.
  const reader = openDatabase(options.databaseUrl, { settings: READER, maxConnections: READERS.reading });
  const stopping = new AbortController();
  const underWay = new UnderWay();
  const workers =
    own === undefined && urls.includes(RELAY)
      ? new RelayWorkers({ db, log, secret, graceMs: options.relayGraceMs })
      : null;
  const engines = new EnginePool({
    urls,
    log,
    kvWaitMs: settings.kvWaitMs,
    affinitySecret: settings.affinityHeaders ? secret : null,
    readRows: async () => {
      const rows = await withStoreRetry({ settings }, () => readReplicas(db));
      return workers ? workers.reachable(rows) : rows;
    },
    connect: (url) => {
      if (!isRelayed(url)) return new UndiciConnection(url, undefined, keyHeader(options.engineKeys ?? {}, url));
      const { relayVia: via } = options;
      const way = via === undefined ? null : { via, key: relayKey(secret) };
      return workers?.connection(url) ?? new HandedConnection(url, way);
    },
  });
  const recorder = new GroupCommit({
    commit: (calls) => recordCalls(db, calls),
    retract: (ids) => retractCalls(db, ids),
    nextTurn: () => setImmediate(),
    waitMs: settings.storeWaitMs,
    log,
  });
  const deliveries = new Deliveries({
    settle: (delivered) => settleDeliveries(db, delivered),
    waitMs: DELIVERIES_MS,
    log,
  });
  const longCalls = new LongCalls({
    note: (calls) => noteLongCalls(db, calls),
    end: (ids) => endLongCalls(db, ids),
    log,
  });
  const trials = new Trials(
    (ids) => findTrials(db, ids),
    () => setImmediate(),
  );
  const refusals = new Refusals({ write: (id, refused) => addRefusals(db, id, refused), log, everyMs: REFUSALS_MS });
  const counters = new Counters();
  const conversations = new Conversations({
    readNew: (after) => withStoreRetry({ settings }, () => readNewCalls(db, after)),
    readTurn: (callId, known) => withStoreRetry({ settings }, () => readTurn(db, callId, known)),
    memory: new ConversationMemory(settings.conversationMemoryBytes, counters.conversations),
  });
  const membership = new Membership({
    db,
    log,
    discovery: options,
    atStart: (write) => withStartRetry(settings, write),
  });
  const runEvents = new RunEvents({ readMark: (runId) => readRunMark(reader, runId) });
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
    relay: workers?.hub ?? null,
    ...(workers ? { relayElsewhere: (id: string) => workers.elsewhere(id) } : {}),
    ...(options.checkpoints === undefined ? {} : { checkpoints: new CheckpointFiles(options.checkpoints) }),
    discovery: () => membership.states,
    openCalls: new InFlight(),
    openBodies: new OpenBodies(),
    sameCalls: new SameCallsHere(),
    deliveries,
    longCalls,
    secret,
    adminKey,
    readKey,
    settings,
    log,
    docsFile,
    pageFile: pageFileIn(options.page),
    reader,
    readGate: new ReadGate(READERS),
    runEvents,
    operateRun: options.operateRun && underWay.follow(options.operateRun),
    startRun: options.startRun && underWay.follow(options.startRun),
    stopping: stopping.signal,
  });
  const workerSockets = own === undefined ? new WorkerSockets({ adminKey, hub: workers?.hub ?? null }) : null;
  const end = async () => {
    await Promise.race([membership.close(), sleep(settings.storeWaitMs)]);
    await engines.close();
    // A connection whose server vanished without closing it would keep the process from ending.
    await Promise.race([Promise.all([db.$client.end(), reader.$client.end()]), sleep(2_000)]);
  };
  try {
    if (lane) {
      await prepareStore(settings, db, options);
      await membership.start();
    }
    const server = await listen(app, {
      host,
      port: options.port,
      headersTimeoutMs: options.headersTimeoutMs ?? 60_000,
      lane,
      own,
      workerSockets,
    });
    const address = server.address();
    const port = typeof address === 'object' && address ? address.port : options.port;
    lane?.reachThrough(reachableAt(host, port));
    workers?.serveAt(options.relayAddress ?? reachableAt(host, port, ownAddress()));
    const close = async () => {
      let isClosed = false;
      // They would last as long as their pages are open.
      runEvents.close();
      const closed = stopServer(server, stopping, { drainMs, settled: () => underWay.settled() }).finally(
        () => (isClosed = true),
      );
      await Promise.all([closed, workerSockets?.closeAfter(server, () => isClosed), lane?.close()]);
      await Promise.race([workers?.close(), sleep(settings.storeWaitMs)]);
      await Promise.race([
        Promise.all([
          recorder.close().then(() => Promise.all([deliveries.close(), longCalls.close()])),
          refusals.close(),
        ]),
        sleep(settings.storeWaitMs),
      ]);
      await end();
    };
    return {
      url: httpUrl(host, port),
      close,
      routes: app.routes,
      snapshot: () => ({ counters, engines: engines.loads, roomWaits: engines.roomWaits }),
    };
  } catch (error) {
    await end();
    throw error;
  }
}

/** Returns this machine's address in its network. */
function ownAddress(): string {
  const all = Object.values(networkInterfaces()).flatMap((each) => each ?? []);
  return all.find(({ internal, family }) => !internal && family === 'IPv4')?.address ?? '127.0.0.1';
}

async function prepareStore(
  settings: GatewaySettings,
  db: Database,
  { databaseUrl, secret }: NodeGatewayOptions,
): Promise<void> {
  await withStartRetry(settings, () => migrate(databaseUrl));
  await withStartRetry(settings, () => requireSecret(db, secret));
}

/** At start no agent waits yet, so PostgreSQL gets more time on a machine that starts everything at once. */
async function withStartRetry(settings: GatewaySettings, ask: () => Promise<void>): Promise<void> {
  try {
    await withStoreRetry({ settings: { storeWaitMs: Math.max(settings.storeWaitMs, START_WAIT_MS) } }, ask);
  } catch (error) {
    if (toFailure(error).code !== 'store_unavailable') throw error;
    throw new TrialgateError(
      'store_unavailable',
      'PostgreSQL does not answer, or takes no writes: start it, or correct --database-url',
      { cause: error },
    );
  }
}
