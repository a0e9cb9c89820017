import { randomUUID } from 'node:crypto';
import pg from 'pg';
import { migrate } from '../../store/queries/migrate.ts';
import { startGateway } from '../../gateway/runtimes/node/start-gateway.ts';
import { protocolOf } from '../../gateway/protocols/all.ts';
import { Replies } from '../support/scenarios/generated.ts';
import { TokenEngine } from '../support/fakes/token-engine.ts';
import { trialOverHttp } from '../support/harness/trial-over-http.ts';
import { isBeside, modeIn, RETRY, type Client } from './client.ts';
import { runClient, type RunResult } from './run.ts';
import { modesOf, recordedOf, suiteFaults, type ModeRecord, type RecordFigures } from './session.ts';
import { Tap, type Exchange } from './tap.ts';
import { play } from './toy.ts';

const ADMIN_KEY = 'the admin key';

/**
 * `recorded` is the gateway's record, `generated` what the engine sampled. `tries` counts how often the client sent the request whose reply
 * was cut. `faults` lists the differences.
 */
export type ToySession = {
  ran: RunResult;
  recorded: RecordFigures;
  modes: ModeRecord[];
  generated: TokenEngine['generated'];
  exchanges: Exchange[];
  tries: number;
  faults: string[];
};

/**
 * `databaseUrl` is a PostgreSQL in which each session creates its own database, because gateways of one database share their engines. `run`
 * starts the client.
 */
type Options = {
  folder: string;
  databaseUrl: string;
  limitMs: number;
  sampling?: Record<string, unknown>;
  run?: typeof runClient;
};

/** Runs a client's sessions of several turns with tools against the toy engine, which gives the replies that the client needs to continue. */
export async function toySession(
  client: Client,
  { folder, databaseUrl, limitMs, sampling = {}, run = runClient }: Options,
): Promise<ToySession> {
  const database = await ownDatabase(databaseUrl);
  const engine = await new TokenEngine().start();
  play(engine, client);
  const gateway = await startGateway({
    host: '127.0.0.1',
    port: 0,
    engines: [engine.url],
    databaseUrl: database.url,
    adminKey: ADMIN_KEY,
    secret: 'a secret of sixteen characters',
  });
  const tap = await new Tap(gateway.url).start();
  let cut: string | null = null;
  tap.cuts = (body) => {
    const mode = modeIn(client, body);
    if (cut !== null || mode?.name !== RETRY || isBeside(client, mode, JSON.parse(body))) return false;
    cut = body;
    return true;
  };
  try {
    const trial = await trialOverHttp({ url: gateway.url, adminKey: ADMIN_KEY }, client.name, {
      // The trials of a run have these settings too. Some clients ask for truncated sampling.
      sampling: { temperature: 1, top_p: 1, top_k: -1, ...sampling },
    });
    const trialUrl = `${client.direct ? gateway.url : tap.url}/${client.name}`;
    const ran = await run(client, {
      folder,
      trialUrl,
      key: trial.key,
      limitMs,
      modes: client.modes.map(({ name }) => name),
    });
    const session = await trial.session();
    const replies = new Replies();
    engine.generated.forEach((each) => replies.add(each));
    const calls = tap.exchanges.filter(isModelCall);
    const tries = calls.filter(
      ({ body }) => cut !== null && JSON.stringify(body) === JSON.stringify(JSON.parse(cut)),
    ).length;
    const faults = suiteFaults(session, {
      exchanges: calls.filter(({ status }) => status === 200),
      matches: replies.take,
    });
    if (replies.left > 0) faults.push(`${replies.left} of the engine's replies are in no turn`);
    return {
      ran,
      recorded: recordedOf(session, await trial.samples()),
      modes: modesOf(client, session),
      generated: engine.generated,
      exchanges: tap.exchanges,
      tries,
      faults,
    };
  } finally {
    await tap.stop();
    await gateway.close();
    await engine.stop();
    await database.drop();
  }
}

/** Creates an empty database with Trialgate's tables in a running PostgreSQL. */
async function ownDatabase(postgresUrl: string): Promise<{ url: string; drop: () => Promise<void> }> {
  const name = `client_${randomUUID().replaceAll('-', '')}`;
  const url = new URL(postgresUrl);
  url.pathname = name;
  await command(postgresUrl, `create database ${name}`);
  await migrate(url.href);
  return { url: url.href, drop: () => command(postgresUrl, `drop database ${name} with (force)`) };
}

async function command(url: string, statement: string): Promise<void> {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  await client.query(statement).finally(() => client.end());
}

/** True for requests that sample tokens. Counting tokens does not. */
export const isModelCall = ({ path }: Pick<Exchange, 'path'>): boolean =>
  protocolOf(path.replace(/\?.*/, '')) !== null && !/count_?tokens/i.test(path);
