import { TestPostgres } from '../../store/testing/postgres.ts';
import { startGateway } from '../node.ts';
import { TokenEngine } from '../testing/token-engine.ts';
import { trialOverHttp } from '../testing/trial-over-http.ts';
import type { Client } from './client.ts';
import { runClient, type Ran } from './run.ts';
import { recordedOf, type Recorded } from './session.ts';
import { Tap, type Exchange } from './tap.ts';
import { play } from './toy.ts';

const ADMIN_KEY = 'the admin key';

/** `recorded`: what the gateway has of it, and `generated`: what the engine says it sampled. */
export type Played = { ran: Ran; recorded: Recorded; generated: TokenEngine['generated']; heard: Exchange[] };

/** What a client asks in a session of several turns with its tools: before the toy engine, which says what it needs to hear to go on. */
export async function toySession(client: Client, { folder, limitMs }: { folder: string; limitMs: number }): Promise<Played> {
  const postgres = await TestPostgres.create();
  const engine = await new TokenEngine().start();
  const gateway = await startGateway({ host: '127.0.0.1', port: 0, engines: [engine.url], databaseUrl: postgres.url, adminKey: ADMIN_KEY, secret: 'a secret of sixteen characters' });
  const tap = await new Tap(gateway.url).start();
  try {
    play(engine, client);
    const trial = await trialOverHttp({ url: gateway.url, adminKey: ADMIN_KEY }, client.name, { sampling: { temperature: 1 } });
    const ran = await runClient(client, { folder, trialUrl: `${tap.url}/${client.name}`, key: trial.key, limitMs });
    return { ran, recorded: recordedOf(await trial.session(), await trial.samples()), generated: engine.generated, heard: tap.heard };
  } finally {
    await tap.stop();
    await gateway.close();
    await engine.stop();
    await postgres.close();
  }
}
