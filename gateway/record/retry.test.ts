import { eq } from 'drizzle-orm';
import { expect, test } from 'vitest';
import { undeliveredCalls } from '../../store/schema.ts';
import { hangUpWhileCommitting, isCommitting, pretendCut } from '../../tests/support/fakes/lost-replies.ts';
import { ASK, eventually, readStream, useSharedGateway } from '../../tests/support/harness/gateways.ts';
import { slowCommits } from '../../tests/support/fakes/slow-commits.ts';

const gateway = useSharedGateway();
const again = (count: number) => ({ 'x-stainless-retry-count': String(count) });
const headersOf = (key: string, more: Record<string, string>) => ({
  authorization: `Bearer ${key}`,
  'content-type': 'application/json',
  ...more,
});
const sampled = () => gateway.engine.seen.filter(({ path }) => path === '/v1/chat/completions').length;

type Trial = Awaited<ReturnType<typeof gateway.trial>>;

const ask = (trial: Trial, headers: Record<string, string>, body: unknown = ASK, signal?: AbortSignal) =>
  gateway.chat(trial.id, trial.key, body, { headers: headersOf(trial.key, headers), ...(signal ? { signal } : {}) });

const headOf = ({ headers }: Response) => ({
  call: headers.get('x-trialgate-call'),
  isReplay: headers.get('x-trialgate-replay') === 'true',
});

async function textOf(reply: Response, stream: boolean): Promise<string> {
  if (!stream) return (await reply.json()).choices[0].message.content;
  const { chunks, done } = await readStream(reply);
  expect(done).toBe(true);
  return chunks.map((chunk) => chunk.choices?.[0]?.delta?.content ?? '').join('');
}

const HOW = [
  { first: again(0), then: again(1) },
  { first: { 'idempotency-key': 'k' }, then: { 'idempotency-key': 'k' } },
];
const CASES = HOW.flatMap((how) => [false, true].map((stream) => ({ ...how, stream })));

test.each(CASES)(
  'a client’s retry gets the reply whose connection ended early, once; the next retry is a new call ($then, stream: $stream)',
  async ({ first, then, stream }) => {
    const trial = await gateway.trial();
    const body = { ...ASK, stream };
    await hangUpWhileCommitting(gateway.db, (signal) => ask(trial, first, body, signal));
    const [lost] = await trial.calls();
    const second = await ask(trial, then, body);
    expect(headOf(second)).toEqual({ call: lost?.id, isReplay: true });
    expect(await textOf(second, stream)).toBe('Hello 🦀 world\u0000!');
    expect(sampled()).toBe(1);
    const third = await ask(trial, then, body);
    expect(headOf(third)).toMatchObject({ isReplay: false });
    await textOf(third, stream);
    expect(await trial.calls()).toMatchObject([{ id: lost?.id, status: 'completed' }, { status: 'completed' }]);
  },
);

test.each(CASES)(
  'a client’s retry after a reply that was delivered whole is a new call ($then, stream: $stream)',
  async ({ first, then, stream }) => {
    const trial = await gateway.trial();
    const body = { ...ASK, stream };
    for (const headers of [first, then, then]) {
      const reply = await ask(trial, headers, body);
      expect(headOf(reply).isReplay).toBe(false);
      await textOf(reply, stream);
    }
    expect(sampled()).toBe(3);
    expect(await trial.calls()).toHaveLength(3);
  },
);

test('a request that is not marked as a retry is a new call, even if an equal request has an undelivered reply', async () => {
  const trial = await gateway.trial();
  await hangUpWhileCommitting(gateway.db, (signal) => ask(trial, again(0), ASK, signal));
  for (const headers of [{}, again(0)]) expect(headOf(await ask(trial, headers)).isReplay).toBe(false);
  expect(headOf(await ask(trial, again(1)))).toEqual({ call: (await trial.calls())[0]?.id, isReplay: true });
  expect(sampled()).toBe(3);
});

test('a client’s retry gets only an undelivered reply to a request of its own trial, body and Idempotency-Key', async () => {
  const trial = await gateway.trial();
  const first = await ask(trial, { 'idempotency-key': 'k' });
  await pretendCut(gateway.db, headOf(first).call);
  expect(headOf(await ask(trial, { 'idempotency-key': 'other' })).isReplay).toBe(false);
  expect(headOf(await ask(trial, { 'idempotency-key': 'k' }, { ...ASK, user: 'somebody' })).isReplay).toBe(false);
  expect(headOf(await ask(await gateway.trial(), { 'idempotency-key': 'k' })).isReplay).toBe(false);
  expect(headOf(await ask(trial, { 'idempotency-key': 'k' }))).toEqual({ call: headOf(first).call, isReplay: true });
});

test('of two concurrent retries by a client one gets the undelivered reply, and the other is a new call', async () => {
  const trial = await gateway.trial();
  await hangUpWhileCommitting(gateway.db, (signal) => ask(trial, again(0), ASK, signal));
  const replies = await Promise.all([ask(trial, again(1)), ask(trial, again(1))]);
  expect(replies.map((reply) => headOf(reply).isReplay).toSorted()).toEqual([false, true]);
  expect(sampled()).toBe(2);
});

test('a client’s retry waits while its first try is under way, and is a new call when that reply is delivered whole', async () => {
  const trial = await gateway.trial();
  gateway.engine.delay = 30;
  const first = ask(trial, again(0));
  await eventually(() => sampled() === 1);
  const second = ask(trial, again(1));
  expect((await first).status).toBe(200);
  expect(headOf(await second).isReplay).toBe(false);
  expect(await trial.calls()).toHaveLength(2);
});

test('a client’s retry that waits for its first try gets the reply when the connection of the first try ends early', async () => {
  const trial = await gateway.trial();
  await slowCommits(gateway.db, 1_500);
  const agent = new AbortController();
  ask(trial, again(0), ASK, agent.signal).catch(() => {});
  await eventually(() => isCommitting(gateway.db));
  const second = ask(trial, again(1));
  await new Promise((resolve) => setTimeout(resolve, 100));
  agent.abort();
  expect(headOf(await second).isReplay).toBe(true);
  expect(sampled()).toBe(1);
});

test('a client’s retry of a call that failed gets no replay and is a new call', async () => {
  const trial = await gateway.trial();
  gateway.engine.fault = 'status_500';
  expect((await trial.chat(ASK)).status).toBe(502);
  gateway.engine.fault = 'none';
  expect((await ask(trial, again(1))).status).toBe(200);
  expect((await trial.calls()).map((call) => call.status)).toEqual(['failed', 'completed']);
});

test('a client’s retry at another gateway gets an undelivered reply, and never a delivered one', async () => {
  const trial = await gateway.trial();
  await hangUpWhileCommitting(gateway.db, (signal) => ask(trial, again(0), ASK, signal));
  const other = { ...ASK, user: 'somebody' };
  await (await ask(trial, again(0), other)).text();
  const [lost] = await trial.calls();
  // A gateway notes deliveries in batches; one that ends before that leaves a delivered reply to be replayed once.
  await eventually(
    async () => (await gateway.db.$count(undeliveredCalls, eq(undeliveredCalls.trialId, trial.id))) === 1,
  );
  await gateway.restart();
  expect(headOf(await ask(trial, again(2)))).toEqual({ call: lost?.id, isReplay: true });
  expect(headOf(await ask(trial, again(2), other)).isReplay).toBe(false);
});
