import { sql } from 'drizzle-orm';
import { expect, test } from 'vitest';
import { findTrial } from '../../../store/queries/find-trials.ts';
import { sealAttempt } from '../../../store/queries/seal-attempt.ts';
import { ASK, eventually, readStream, useSharedGateway } from '../../../tests/support/harness/gateways.ts';

const gateway = useSharedGateway();
const MAX = 100_000;
/** Random text, so that no two calls share content. */
const sized = (bytes: number, more: object = {}) => ({
  ...ASK,
  ...more,
  messages: [{ role: 'user', content: Array.from({ length: bytes / 10 }, () => Math.random().toFixed(8)).join('') }],
});
const endOf = async (reply: Response): Promise<unknown> =>
  reply.status === 200 ? (await reply.json()).choices[0].finish_reason : reply.status;
const session = async (id: string): Promise<unknown> => (await gateway.admin('GET', `/sessions/${id}`)).json();

async function stored(trialId: string): Promise<{ rows: number; bytes: number }> {
  const { rows } = await gateway.db.execute<{ rows: number; bytes: number }>(
    sql`select count(*)::int as rows, sum(length(request) + coalesce(length(response), 0) + coalesce(length(prompt_token_ids), 0))::int as bytes from calls where trial_id = ${trialId}`,
  );
  return rows[0] ?? { rows: 0, bytes: 0 };
}

test.each([
  { budgetEnd: 'length' as const, after: 'length' },
  { budgetEnd: 'refuse' as const, after: 429 },
])(
  'a trial stores no more than its budget of bytes, and calls after that leave no rows (end: $budgetEnd)',
  async ({ budgetEnd, after }) => {
    await gateway.restart({ settings: { budgetEnd } });
    const trial = await gateway.trial({ budgets: { bytes: MAX } });
    const ends = [];
    for (let i = 0; i < 4; i++) ends.push(await endOf(await trial.chat(sized(30_000))));
    expect(ends).toEqual(['stop', 'stop', 'stop', 429]);
    const full = await stored(trial.id);
    expect(full.rows).toBe(4);
    expect(full.bytes).toBeLessThan(MAX);
    expect(await session(trial.id)).toMatchObject({
      exhausted: 'budget_exhausted',
      usage: { calls: 3, bytes: MAX },
      unfinished: [{ http_status: 429, reason: expect.stringContaining(`${MAX} stored bytes`) }],
    });
    for (let i = 0; i < 5; i++) expect(await endOf(await trial.chat(sized(30_000)))).toBe(after);
    expect(await stored(trial.id)).toEqual(full);
    expect(gateway.engine.seen).toHaveLength(4);
    await sealAttempt(gateway.db, { trialId: trial.id, attempt: 1, outcome: 'infra_error' });
    const next = await gateway.trial({ trialId: trial.id, attempt: 2, budgets: { bytes: MAX } });
    expect(await endOf(await next.chat(ASK))).toBe('stop');
  },
);

test('concurrent calls of a trial stay within its budget of bytes, and their reservations are released', async () => {
  const trial = await gateway.trial({ budgets: { bytes: MAX, tokens: 10_000 } });
  const released = Promise.withResolvers<void>();
  gateway.engine.beforeEnd = () => released.promise;
  const replies = Array.from({ length: 8 }, () => trial.chat(sized(30_000, { max_tokens: 100 })));
  await eventually(() => gateway.engine.seen.length === 8);
  released.resolve();
  const ends = await Promise.all(replies.map(async (reply) => endOf(await reply)));
  expect(ends.filter((end) => end === 'stop')).toHaveLength(3);
  expect(ends.filter((end) => end === 429)).toHaveLength(5);
  expect((await stored(trial.id)).bytes).toBeLessThan(MAX);
  await eventually(async () => JSON.stringify((await findTrial(gateway.db, trial.id))?.reserved) === '{}');
});

test('a stream that does not fit into its trial’s budget of bytes does not reach its end', async () => {
  const trial = await gateway.trial({ budgets: { bytes: 10_000 } });
  const { text, done, broken } = await readStream(await trial.chat({ ...sized(20_000), stream: true }));
  expect([done, broken, text.includes('budget_exhausted')]).toEqual([false, true, true]);
  expect(await session(trial.id)).toMatchObject({ exhausted: 'budget_exhausted', usage: { calls: 0, bytes: 10_000 } });
});

test('a cancelled call counts towards its trial’s budget of bytes, and exhausts the budget when it does not fit', async () => {
  const trial = await gateway.trial({ budgets: { bytes: 10_000 } });
  gateway.engine.fault = 'hang';
  const leaving = new AbortController();
  const left = trial.chat({ ...sized(20_000), stream: true }, { signal: leaving.signal }).then((reply) => reply.text());
  await eventually(() => gateway.engine.seen.length === 1);
  leaving.abort();
  await expect(left).rejects.toThrow();
  await eventually(async () => (await findTrial(gateway.db, trial.id))?.usedBytes === 10_000);
  expect(await stored(trial.id)).toMatchObject({ rows: 1 });
});
