import { setTimeout as pause } from 'node:timers/promises';
import { openDatabase } from '../../../store/database.ts';
import { TestPostgres } from '../harness/postgres.ts';
import { EngineLog } from '../fakes/engine-log.ts';
import { GatewayProcess } from '../harness/gateway-process.ts';
import { slowCommits } from '../fakes/slow-commits.ts';
import { agentsUntil, auditLoad, type LoadCounts } from './retrying-load.ts';
import { TokenEngine } from '../fakes/token-engine.ts';

export type KillCounts = LoadCounts & { kills: number };

type Options = { kills: number; agents: number; signal?: AbortSignal; onKill?: (kills: number) => void };

const ADMIN_KEY = 'the admin key';
const BUSY_MS = 20;
const DISK_MS = 2;

/**
 * Kills a gateway repeatedly while agents ask through it, then compares what they saw end, what the engines sent, and the record. Half of
 * the kills come at a random moment, half just after an engine sent a reply, about when it is committed.
 */
export async function killUnderLoad({
  kills,
  agents,
  signal = new AbortController().signal,
  onKill = () => {},
}: Options): Promise<KillCounts> {
  const postgres = await TestPostgres.create();
  const db = openDatabase(postgres.url);
  await slowCommits(db, DISK_MS);
  const log = new EngineLog();
  // One engine streams text as it is sampled. The other parses replies when they are whole.
  const engines = await Promise.all(
    [true, false].map(async (parses) => Object.assign(await new TokenEngine().start(), { parses, pace: 3 })),
  );
  for (const engine of engines) log.keep(engine, BUSY_MS);
  const gateway = new GatewayProcess({
    engines: engines.map(({ url }) => url),
    databaseUrl: postgres.url,
    adminKey: ADMIN_KEY,
    secret: 'a secret of sixteen characters',
  });
  const [over, end] = [new AbortController(), new AbortController()];
  try {
    await gateway.start();
    const load = agentsUntil(over.signal, {
      gateway: () => gateway.url,
      adminKey: ADMIN_KEY,
      agents,
      signal: end.signal,
    });
    // Errors of agents are handled where `load` is awaited.
    load.catch(() => {});
    for (let kill = 1; kill <= kills; kill++) {
      signal.throwIfAborted();
      // Wait until the gateway is under load again.
      for (let replies = Math.ceil((1 + 3 * Math.random()) * agents); replies > 0; replies--)
        await Promise.race([log.finish(), load]);
      await pause(Math.random() * (kill % 2 === 0 ? 10 : 200));
      await gateway.kill();
      await gateway.start();
      onKill(kill);
    }
    over.abort();
    const observations = await load;
    await gateway.kill('SIGTERM');
    return { ...(await auditLoad(db, observations, log)), kills };
  } finally {
    end.abort();
    await gateway.kill();
    await Promise.all(engines.map((engine) => engine.stop()));
    await db.$client.end();
    await postgres.close();
  }
}
