import { setTimeout as pause } from 'node:timers/promises';
import { openDatabase } from '../../../store/database.ts';
import { TestPostgres } from '../harness/postgres.ts';
import { EngineLog } from '../fakes/engine-log.ts';
import { GatewayProcess } from '../harness/gateway-process.ts';
import { auditKills, type Audit } from '../oracles/kill-audit.ts';
import { slowCommits } from '../fakes/slow-commits.ts';
import { runRetryingAgent, type AgentObservation } from './retrying-agent.ts';
import { TokenEngine } from '../fakes/token-engine.ts';

export type KillCounts = Audit & {
  kills: number;
  /** Requests that agents sent, retries included. */
  tries: number;
  /** Tries that no gateway accepted, and tries that a kill cut. */
  refused: number;
  cut: number;
  /** Replies that engines began, and those that they sent whole. */
  sampled: number;
  sent: number;
  /** Replies that agents saw end, and those of them that an earlier process had recorded. */
  ended: number;
  replayed: number;
  /** Answers that no agent may get. */
  odd: string[];
};

type Options = { kills: number; agents: number; signal?: AbortSignal; onKill?: (kills: number) => void };

const ADMIN_KEY = 'the admin key';
const TURNS = 4;
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
    const { url } = gateway;
    const load = Promise.all(
      Array.from({ length: agents }, async (_, agent) => {
        const observations: AgentObservation[] = [];
        while (!over.signal.aborted) {
          const trialId = `agent-${agent}.${observations.length}`;
          observations.push(
            await runRetryingAgent({
              gateway: url,
              adminKey: ADMIN_KEY,
              trialId,
              turns: TURNS,
              keyed: agent % 2 === 0,
              isOver: () => over.signal.aborted,
              signal: end.signal,
            }),
          );
        }
        return observations;
      }),
    );
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
    const observations = (await load).flat();
    await gateway.kill('SIGTERM');
    return {
      ...countObservations(observations),
      ...countSampled(log),
      ...(await auditKills(
        db,
        observations.flatMap(({ ended }) => ended),
        log.sampled,
      )),
      kills,
    };
  } finally {
    end.abort();
    await gateway.kill();
    await Promise.all(engines.map((engine) => engine.stop()));
    await db.$client.end();
    await postgres.close();
  }
}

function countObservations(observations: readonly AgentObservation[]) {
  const sum = (count: (observation: AgentObservation) => number) =>
    observations.reduce((total, observation) => total + count(observation), 0);
  return {
    tries: sum((observation) => observation.tries),
    refused: sum((observation) => observation.refused),
    cut: sum((observation) => observation.cut),
    ended: sum((observation) => observation.ended.length),
    replayed: sum((observation) => observation.ended.filter((reply) => reply.replayed).length),
    odd: observations.flatMap((observation) => observation.odd),
  };
}

const countSampled = ({ sampled }: EngineLog) => ({
  sampled: sampled.length,
  sent: sampled.filter(({ finished }) => finished).length,
});
