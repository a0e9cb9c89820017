import { eq } from 'drizzle-orm';
import { expect, test } from 'vitest';
import { calls } from '../../store/schema.ts';
import { ASK, eventually, readStream, useGateway } from '../testing/harness.ts';

const gateway = useGateway();
const again = (count: number) => ({ 'x-stainless-retry-count': String(count) });
const headersOf = (key: string, more: Record<string, string>) => ({ authorization: `Bearer ${key}`, 'content-type': 'application/json', ...more });
const sampled = () => gateway.engine.seen.filter(({ path }) => path === '/v1/chat/completions').length;

test.each([false, true])('an SDK\'s retry of a call that completed is sampled again (stream: %s)', async (stream) => {
  const trial = await gateway.trial();
  const ask = { ...ASK, stream };
  const first = await trial.chat(ask, { headers: headersOf(trial.key, again(0)) });
  const second = async () => trial.chat(ask, { headers: headersOf(trial.key, again(1)) });
  if (stream) {
    const text = ({ chunks }: Awaited<ReturnType<typeof readStream>>) => chunks.map((chunk) => chunk.choices?.[0]?.delta?.content ?? '').join('');
    const [before, after] = [await readStream(first), await readStream(await second())];
    expect(text(after)).toBe(text(before));
    expect([after.done, after.finish?.choices?.[0]?.finish_reason]).toEqual([true, 'stop']);
  } else expect(await (await second()).json()).toEqual(await first.json());
  expect(sampled()).toBe(1);
  expect(await trial.calls()).toHaveLength(1);
});

test('the same body without a retry\'s header is taken for a retry', async () => {
  const trial = await gateway.trial();
  await trial.chat(ASK);
  await trial.chat(ASK);
  expect(await trial.calls()).toHaveLength(2);
});

test('the same Idempotency-Key is sampled twice, or answers another body', async () => {
  const trial = await gateway.trial();
  const headers = headersOf(trial.key, { 'idempotency-key': 'k' });
  const [first, second] = [await trial.chat(ASK, { headers }), await trial.chat(ASK, { headers })];
  expect(second.headers.get('x-trialgate-call')).toBe(first.headers.get('x-trialgate-call'));
  const other = await trial.chat({ ...ASK, user: 'somebody' }, { headers });
  expect(other.headers.get('x-trialgate-call')).not.toBe(first.headers.get('x-trialgate-call'));
  expect(await trial.calls()).toHaveLength(2);
});

test('a retry that overtakes its first try is sampled beside it', async () => {
  const trial = await gateway.trial();
  gateway.engine.delay = 30;
  const first = trial.chat(ASK);
  await eventually(() => sampled() === 1);
  const second = await trial.chat(ASK, { headers: headersOf(trial.key, again(1)) });
  expect(second.headers.get('x-trialgate-call')).toBe((await first).headers.get('x-trialgate-call'));
  expect(sampled()).toBe(1);
});

test('a retry of a call that was cancelled or failed replays nothing', async () => {
  const trial = await gateway.trial();
  gateway.engine.fault = 'status_500';
  expect((await trial.chat(ASK)).status).toBe(502);
  gateway.engine.fault = 'none';
  expect((await trial.chat(ASK, { headers: headersOf(trial.key, again(1)) })).status).toBe(200);
  expect((await trial.calls()).map((call) => call.status)).toEqual(['failed', 'completed']);
});

test.each([again(1), { 'idempotency-key': 'k' }])('a failed row of the same call hides the one that completed in another process: %j', async (how) => {
  const trial = await gateway.trial();
  const headers = headersOf(trial.key, { ...how, 'idempotency-key': 'k' });
  const first = await trial.chat(ASK, { headers });
  const [call] = await gateway.db.select().from(calls).where(eq(calls.trialId, trial.id));
  if (call) await gateway.db.insert(calls).values({ ...call, id: crypto.randomUUID(), seq: undefined, replayed: false, status: 'cancelled', response: null });
  const second = await trial.chat(ASK, { headers: headersOf(trial.key, how) });
  expect(second.headers.get('x-trialgate-call')).toBe(first.headers.get('x-trialgate-call'));
  expect(sampled()).toBe(1);
});

test('a retry that reaches another gateway process than its first try is sampled again', async () => {
  const trial = await gateway.trial();
  const first = await trial.chat(ASK);
  await gateway.restart();
  const second = await gateway.chat(trial.id, trial.key, ASK, { headers: headersOf(trial.key, again(2)) });
  expect(second.headers.get('x-trialgate-call')).toBe(first.headers.get('x-trialgate-call'));
  expect(sampled()).toBe(1);
});
