import { afterEach, beforeEach, expect, test } from 'vitest';
import { REPOSITORY } from '../../core/repository.ts';
import { TestPostgres } from '../support/harness/postgres.ts';
import { startGateway, type NodeGateway } from '../../gateway/runtimes/node/start-gateway.ts';
import { TokenEngine } from '../support/fakes/token-engine.ts';
import { trialOverHttp } from '../support/harness/trial-over-http.ts';
import { CLIENTS } from './all.ts';
import { clientBesideVllm, differs, isAnswered, refusedIn, sessionBesideVllm } from './beside-vllm.ts';
import type { Client } from './client.ts';
import { toySession, type ToySession } from './toy-session.ts';

const ADMIN_KEY = 'the admin key';
const OWN = CLIENTS.filter(({ install: from, besideVllm }) => 'own' in from && besideVllm);
let postgres: TestPostgres;
let engine: TokenEngine;
let gateways: NodeGateway[] = [];
/** Each client's session with the toy engine, kept so that all tests send the same requests. */
const sessions = new Map<string, Promise<ToySession>>();

/** A gateway that asks for no key stands in for vLLM, because the toy engine itself serves only chat. */
beforeEach(async () => {
  postgres = await TestPostgres.create();
  engine = await Object.assign(new TokenEngine(), {
    answer: ({ messages }) => ({ text: `nonsense ${messages.length}`, ends: false }),
  } satisfies Partial<TokenEngine>).start();
  const options = {
    host: '127.0.0.1',
    port: 0,
    engines: [engine.url],
    databaseUrl: postgres.url,
    adminKey: ADMIN_KEY,
    secret: 'a secret of sixteen characters',
  };
  gateways = [
    await startGateway({ ...options, settings: { tokenIn: false } }),
    await startGateway({ ...options, settings: { tokenIn: false, compat: 'verl' } }),
  ];
});

afterEach(async () => {
  for (const gateway of gateways) await gateway.close();
  await engine.stop();
  await postgres.close();
});

async function where(signal: AbortSignal) {
  const [url = '', direct = ''] = gateways.map((gateway) => gateway.url);
  await trialOverHttp({ url: direct, adminKey: ADMIN_KEY }, 'direct');
  return {
    folder: REPOSITORY,
    gateway: { url, adminKey: ADMIN_KEY },
    vllm: `${direct}/direct`,
    limitMs: 120_000,
    signal,
  };
}

function played(client: Client): Promise<ToySession> {
  const session =
    sessions.get(client.name) ??
    toySession(client, { folder: REPOSITORY, databaseUrl: postgres.url, limitMs: 120_000 });
  sessions.set(client.name, session);
  return session;
}

test.for(OWN)(
  'the comparison with vLLM finds equal replies equal for $name and repeats every turn of its session with tools',
  async (client, { signal }) => {
    const at = await where(signal);
    const { ran, compared, recorded } = await clientBesideVllm(client, at);
    expect(ran.code, ran.output).toBe(0);
    expect(compared.filter(differs)).toEqual([]);
    expect(recorded).toMatchObject({ calls: compared.length, unfinished: 0 });
    const roles = new Set<string>();
    engine.before = ({ body }) => body.messages.forEach(({ role }) => roles.add(role));
    const session = await sessionBesideVllm(client, await played(client), at);
    expect(session.compared.filter(differs)).toEqual([]);
    expect(session.compared.length).toBe(compared.length);
    expect(session.recorded).toMatchObject({ calls: compared.length, unfinished: 0 });
    expect(roles).toContain('tool');
  },
);

test.for(OWN)(
  'the comparison with vLLM finds different replies different for $name and counts refused requests',
  async (client, { signal }) => {
    let asked = 0;
    let messages = 0;
    engine.before = ({ body }) => void (messages = body.messages.length);
    engine.fault = () => (messages > 5 ? 422 : null);
    engine.answer = () => ({ text: `nonsense ${asked++}`, ends: false });
    const at = await where(signal);
    const { compared, recorded } = await sessionBesideVllm(client, await played(client), at);
    const answered = compared.filter(isAnswered);
    expect([answered.filter(differs).length, compared.filter(differs).length]).toEqual([
      answered.length,
      answered.length,
    ]);
    expect(refusedIn(compared)).toEqual({ 422: compared.length - answered.length });
    expect(recorded).toMatchObject({ calls: answered.length, unfinished: compared.length - answered.length });
  },
);
