import { connect } from 'node:net';
import { describe, expect, test } from 'vitest';
import { ASK, eventually, IN_WORKERD, useSharedGateway } from '../../../tests/support/harness/gateways.ts';

const MIB = 2 ** 20;
const WHOLE = 64 * MIB;
/** An upper bound of what the operating systems buffer for the connections and the gateway for the body. */
const BUFFERED = 32 * MIB;

const gateway = useSharedGateway({ settings: { maxBodyBytes: 60 * MIB, maxBodyNodes: 100_000, maxCallsInFlight: 1 } });

type SentBody = { path: string; key: string; length: number | null; part?: string };

/** Sends a body while the connection is open, and counts the bytes that the system accepted. If `length` is null, it is sent in chunks. */
async function sendBody({ path, key, length, part = 'x'.repeat(MIB) }: SentBody) {
  const { hostname, port } = new URL(gateway.gateway.url);
  const socket = connect(Number(port), hostname);
  const state = { text: '', sent: 0 };
  socket.on('data', (bytes: Buffer) => (state.text += bytes.toString()));
  // The gateway resets the connection of a sender that goes on.
  socket.on('error', () => {});
  socket.write(
    `POST ${path} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${key}\r\n${length === null ? 'Transfer-Encoding: chunked' : `Content-Length: ${length}`}\r\n\r\n`,
  );
  const send = (): void => {
    if (state.sent + part.length > (length ?? WHOLE)) return;
    socket.write(length === null ? `${part.length.toString(16)}\r\n${part}\r\n` : part, (error) => {
      if (error) return;
      state.sent += part.length;
      send();
    });
  };
  send();
  await new Promise((resolve) => socket.once('close', resolve));
  const [head = '', body = ''] = state.text.split('\r\n\r\n');
  return { status: Number(/^HTTP\/1\.1 (\d+)/.exec(head)?.[1] ?? 0), head: head.toLowerCase(), body, sent: state.sent };
}

type Trial = { id: string; key: string };
const calling = ({ id, key }: Trial, more: Partial<SentBody> = {}): SentBody => ({
  path: `/${id}/v1/chat/completions`,
  key,
  length: WHOLE,
  ...more,
});

// In a Worker the platform holds the connection.
describe.skipIf(IN_WORKERD)('refused bodies', () => {
  test.each<[string, number, (trial: Trial) => SentBody]>([
    ['announces more bytes than are accepted', 413, (trial) => calling(trial)],
    [
      'has more values than are accepted',
      413,
      (trial) => calling(trial, { length: 58 * MIB, part: '[],'.repeat(MIB / 3) }),
    ],
    ['is sent with a wrong key', 401, (trial) => calling({ ...trial, key: 'no' })],
    ['is sent with a wrong key in chunks', 401, (trial) => calling({ ...trial, key: 'no' }, { length: null })],
    ['is sent to no route', 404, (trial) => ({ ...calling(trial), path: `/${trial.id}/v1/nothing` })],
  ])('a request body that %s gets a %d and is not read to its end', async (_what, status, asking) => {
    const trial = await gateway.trial();
    const refused = await sendBody(asking(trial));
    expect(refused.status).toBe(status);
    expect(refused.head).toContain('connection: close');
    expect(JSON.parse(refused.body)).toMatchObject({ error: { message: expect.any(String) } });
    expect(refused.sent).toBeLessThan(BUFFERED);
    expect((await trial.chat(ASK)).status).toBe(200);
  });

  test('a request body in chunks that grows larger than is accepted gets a 413 and is not read to its end', async () => {
    await gateway.restart({ settings: { maxBodyBytes: 4 * MIB } });
    const refused = await sendBody(calling(await gateway.trial(), { length: null }));
    expect(refused.status).toBe(413);
    expect(refused.sent).toBeLessThan(BUFFERED);
  });

  test('a large request body of a trial whose calls are all open gets a 429 and is not read to its end', async () => {
    const trial = await gateway.trial();
    const released = Promise.withResolvers<void>();
    gateway.engine.beforeEnd = () => released.promise;
    const open = trial.chat({ ...ASK, metadata: 'x'.repeat(MIB) });
    await eventually(() => gateway.engine.seen.length === 1);
    const refused = await sendBody(calling(trial, { length: 58 * MIB }));
    expect(refused.status).toBe(429);
    expect(refused.sent).toBeLessThan(BUFFERED);
    released.resolve();
    expect((await open).status).toBe(200);
  });
});

test.skipIf(IN_WORKERD)('a request whose small body is refused keeps its connection open', async () => {
  const trial = await gateway.trial();
  const refused = await trial.chat(
    { ...ASK, metadata: 'x'.repeat(MIB / 2) },
    { headers: { authorization: 'Bearer no' } },
  );
  expect([refused.status, refused.headers.get('connection')]).toEqual([401, expect.not.stringContaining('close')]);
});
