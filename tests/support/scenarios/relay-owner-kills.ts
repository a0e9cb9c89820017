import { openDatabase } from '../../../store/database.ts';
import { readLeases } from '../../../store/queries/relay-leases.ts';
import { EngineLog } from '../fakes/engine-log.ts';
import { TokenEngine } from '../fakes/token-engine.ts';
import { GatewayProcess } from '../harness/gateway-process.ts';
import { TestPostgres } from '../harness/postgres.ts';
import { openWire, RelayWorkerProcess } from '../harness/relay.ts';
import { until } from '../harness/until.ts';
import { agentsUntil, auditLoad, type LoadCounts } from './retrying-load.ts';

export type OwnerKillCounts = LoadCounts & {
  /** The number of replies of each gateway that its agents saw end. */
  endedAt: [number, number];
};

type Options = { kills: number; agents: number; signal?: AbortSignal };

const ADMIN_KEY = 'the admin key';
const SECRET = 'a secret of sixteen characters';
const REPLIES_BETWEEN = 20;

/**
 * Two gateways share one relay worker. The one that holds the worker's connection is killed repeatedly while agents ask both, and the worker
 * is led to the other. Then compares what the agents saw end, what the engine sent, and the record. All but the engine are processes of
 * their own.
 */
export async function killOwnersUnderLoad({
  kills,
  agents,
  signal = new AbortController().signal,
}: Options): Promise<OwnerKillCounts> {
  await using stack = new AsyncDisposableStack();
  const postgres = stack.adopt(await TestPostgres.create(), (each) => each.close());
  const db = stack.adopt(openDatabase(postgres.url), (each) => each.$client.end());
  const log = new EngineLog();
  const open = () =>
    stack
      .adopt(
        new GatewayProcess({ engines: ['relay'], databaseUrl: postgres.url, adminKey: ADMIN_KEY, secret: SECRET }),
        (each) => each.kill(),
      )
      .start();
  const [first, second] = [await open(), await open()];
  const engine = stack.adopt(await new TokenEngine().start(), (each) => each.stop());
  log.keep(Object.assign(engine, { pace: 3 }), 10);
  const wire = stack.adopt(await openWire(first.url), ({ link }) => link.close());
  stack.adopt(
    new RelayWorkerProcess({ gateway: wire.url, engine: engine.url, adminKey: ADMIN_KEY, id: 'w1' }),
    (each) => each.stop(),
  );
  const ownedBy = (gateway: GatewayProcess) =>
    until(async () => (await readLeases(db)).some((lease) => lease.id === 'w1' && lease.gateway === gateway.url));
  await ownedBy(first);
  const [over, end] = [new AbortController(), new AbortController()];
  stack.defer(() => end.abort());
  const gatewayOf = (agent: number) => (agent % 2 === 0 ? first : second);
  const load = agentsUntil(over.signal, {
    gateway: (agent) => gatewayOf(agent).url,
    adminKey: ADMIN_KEY,
    agents,
    signal: end.signal,
  });
  // Errors of agents are handled where `load` is awaited.
  load.catch(() => {});
  let [owner, other] = [first, second];
  for (let kill = 0; kill < kills; kill++) {
    signal.throwIfAborted();
    for (let replies = REPLIES_BETWEEN; replies > 0; replies--) await Promise.race([log.finish(), load]);
    await owner.kill();
    wire.leadTo(other.url);
    await ownedBy(other);
    await owner.start();
    [owner, other] = [other, owner];
  }
  for (let replies = REPLIES_BETWEEN; replies > 0; replies--) await Promise.race([log.finish(), load]);
  over.abort();
  const observations = await load;
  await Promise.all([first.kill('SIGTERM'), second.kill('SIGTERM')]);
  const ended = observations.flatMap((each) => each.ended);
  const endedAt = (gateway: GatewayProcess) =>
    ended.filter(({ trialId }) => gatewayOf(Number(/^agent-(\d+)/.exec(trialId)?.[1])) === gateway).length;
  return { ...(await auditLoad(db, observations, log)), endedAt: [endedAt(first), endedAt(second)] };
}
