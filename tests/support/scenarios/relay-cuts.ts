import { setTimeout as pause } from 'node:timers/promises';
import { openDatabase } from '../../../store/database.ts';
import { EngineLog } from '../fakes/engine-log.ts';
import { TokenEngine } from '../fakes/token-engine.ts';
import { GatewayProcess } from '../harness/gateway-process.ts';
import { TestPostgres } from '../harness/postgres.ts';
import { openWire, RelayWorkerProcess, workersOf } from '../harness/relay.ts';
import { until } from '../harness/until.ts';
import { agentsUntil, auditLoad, type LoadCounts } from './retrying-load.ts';

type Options = { cuts: number; workers: number; agents: number; signal?: AbortSignal };

const ADMIN_KEY = 'the admin key';
const BUSY_MS = 10;
const BETWEEN_MS = 100;

/**
 * Cuts the sockets of relay workers, each once it stands, while agents ask for whole and streamed replies. Then compares what the agents saw
 * end, what the engines sent, and the record. Gateway, workers and PostgreSQL are processes of their own.
 */
export async function cutUnderLoad({
  cuts,
  workers: count,
  agents,
  signal = new AbortController().signal,
}: Options): Promise<LoadCounts> {
  await using stack = new AsyncDisposableStack();
  const postgres = stack.adopt(await TestPostgres.create(), (each) => each.close());
  const db = stack.adopt(openDatabase(postgres.url), (each) => each.$client.end());
  const log = new EngineLog();
  const gateway = stack.adopt(
    new GatewayProcess({
      engines: ['relay'],
      databaseUrl: postgres.url,
      adminKey: ADMIN_KEY,
      secret: 'a secret of sixteen characters',
    }),
    (each) => each.kill(),
  );
  const { url } = await gateway.start();
  const wires = [];
  for (let i = 0; i < count; i++) {
    const engine = stack.adopt(await new TokenEngine().start(), (each) => each.stop());
    log.keep(Object.assign(engine, { pace: 3 }), BUSY_MS);
    const wire = stack.adopt(await openWire(url), ({ link }) => link.close());
    const id = `w${i}`;
    stack.adopt(new RelayWorkerProcess({ gateway: wire.url, engine: engine.url, adminKey: ADMIN_KEY, id }), (each) =>
      each.stop(),
    );
    wires.push({ id, link: wire.link });
  }
  const connected = (id: string) =>
    until(async () => (await workersOf(url, ADMIN_KEY)).some((each) => each.worker_id === id && each.connected));
  await Promise.all(wires.map(({ id }) => connected(id)));
  const [over, end] = [new AbortController(), new AbortController()];
  stack.defer(() => end.abort());
  const load = agentsUntil(over.signal, { gateway: () => url, adminKey: ADMIN_KEY, agents, signal: end.signal });
  // Errors of agents are handled where `load` is awaited.
  load.catch(() => {});
  for (let cut = 0; cut < cuts; cut++) {
    signal.throwIfAborted();
    const wire = wires[cut % count];
    if (!wire) throw new Error('no worker');
    await connected(wire.id);
    await pause(Math.random() * BETWEEN_MS);
    wire.link.cut();
    wire.link.restore();
  }
  over.abort();
  const observations = await load;
  await gateway.kill('SIGTERM');
  return await auditLoad(db, observations, log);
}
