import { expect, test } from 'vitest';
import { sql } from 'drizzle-orm';
import type { Fault } from '../../../tests/support/fakes/fake-engine.ts';
import {
  ADMIN_KEY,
  ASK,
  IMPATIENT,
  IN_WORKERD,
  SECRET,
  startTestGateway,
  useGatewayOnServer,
} from '../../../tests/support/harness/gateways.ts';

const gateway = useGatewayOnServer();
const FAULTS: Fault[] = [
  'status_500',
  'status_503',
  'bad_request',
  'cut',
  'error_event',
  'hang',
  'not_json',
  'no_ids',
  'refuse',
];

test('the gateway’s log, its errors and the store contain no secret after every kind of fault', async () => {
  const PASSWORD = 'the-database-password';
  await gateway.restart({
    settings: IMPATIENT,
    databaseUrl: gateway.postgres.url.replace('postgres@', `postgres:${PASSWORD}@`),
  });
  const trial = await gateway.trial();
  const replies: string[] = [];
  const collect = async (reply: Promise<Response>) => {
    const answer = await reply;
    replies.push([...answer.headers].join(), await answer.text().catch(String));
  };
  for (const fault of FAULTS) {
    gateway.engine.fault = fault;
    for (const stream of [false, true]) {
      await collect(trial.chat({ ...ASK, stream }));
      await collect(gateway.post(`/${trial.id}/v1/messages`, trial.key, { ...ASK, max_tokens: 9, stream }));
      await collect(gateway.post(`/${trial.id}/v1/responses`, trial.key, { input: 'x', stream }));
    }
  }
  gateway.engine.fault = 'none';
  for (const [path, key] of [
    [`/${trial.id}/v1/chat/completions`, `${trial.key}x`],
    ['/v1/chat/completions', `${trial.key}x`],
    [`/nobody/v1/completions`, trial.key],
    [`/sessions/${trial.id}`, trial.key],
  ] as const) {
    await collect(gateway.post(path, key, ASK));
  }
  for (const path of [
    `/sessions/${trial.id}`,
    '/sessions',
    '/sessions/export',
    `/sessions/${trial.id}/samples`,
    '/metrics',
    '/openapi.json',
  ])
    await collect(gateway.admin('GET', path));
  await gateway.postgres.stop();
  try {
    await collect(trial.chat(ASK));
    await collect(gateway.admin('GET', `/sessions/${trial.id}`));
  } finally {
    await gateway.postgres.start();
  }
  const { rows } = await gateway.db.execute(
    sql`select query_to_xml('select *, convert_from(request, ''UTF8'') as asked, convert_from(response, ''UTF8'') as replies from calls', true, true, '')::text || query_to_xml('select * from trials', true, true, '')::text || query_to_xml('select * from attempts', true, true, '')::text as dump`,
  );
  const places = { log: gateway.log.join('\n'), replies: replies.join('\n'), store: JSON.stringify(rows) };
  expect(places.log).toContain('engine_');
  const secrets = {
    secret: SECRET,
    'admin key': ADMIN_KEY,
    key: trial.key.slice(-43),
    'key, encoded': Buffer.from(trial.key).toString('base64').slice(0, 20),
    database: PASSWORD,
  };
  for (const [place, text] of Object.entries(places))
    for (const [name, secret] of Object.entries(secrets))
      expect([place, name, text.includes(secret)]).toEqual([place, name, false]);
});

test('a gateway whose secret is not the one of its database refuses to serve and says what to do', async () => {
  const options = {
    host: '127.0.0.1',
    port: 0,
    engines: [gateway.engine.url],
    databaseUrl: gateway.postgres.url,
    adminKey: ADMIN_KEY,
  };
  const start = (secret: string) => startTestGateway({ ...options, secret });
  const help = expect.stringMatching(/another secret.*--secret.*delete from deployment/);
  if (IN_WORKERD) {
    await (await gateway.trial()).chat(ASK);
    const other = await start('another secret of a deployment');
    const reply = await fetch(`${other.url}/sessions`, { headers: { authorization: `Bearer ${ADMIN_KEY}` } });
    expect([reply.status, await reply.json()]).toMatchObject([
      500,
      { error: { code: 'missing_prerequisite', message: help } },
    ]);
    await other.close();
  } else
    await expect(start('another secret of a deployment')).rejects.toMatchObject({
      code: 'missing_prerequisite',
      message: help,
    });
  await (await start(SECRET)).close();
});
