import { eq, sql } from 'drizzle-orm';
import type { Database } from '../../../store/database.ts';
import { calls, undeliveredCalls } from '../../../store/schema.ts';
import { until } from '../harness/until.ts';
import { slowCommits } from './slow-commits.ts';

/** Marks a reply in the store as one whose connection ended early, although its agent received it whole. */
export async function pretendCut(db: Database, callId: string | null): Promise<void> {
  const [call] = await db
    .select()
    .from(calls)
    .where(eq(calls.id, callId ?? ''));
  if (!call?.digest) throw new Error(`no call ${callId}`);
  const { id, trialId, attempt, digest, idempotencyKey } = call;
  await until(async () => (await db.$count(undeliveredCalls, eq(undeliveredCalls.callId, id))) === 0);
  await db
    .insert(undeliveredCalls)
    .values({ callId: id, trialId, attempt, digest, idempotencyKey, backend: 0, isCut: true });
}

export async function isCommitting(db: Database): Promise<boolean> {
  return (
    (
      await db.execute(
        sql`select 1 from pg_stat_activity where datname = current_database() and wait_event = 'PgSleep'`,
      )
    ).rows.length > 0
  );
}

/** Sends a request and hangs up while its call is committed. The call completes, and nobody receives its reply. */
export async function hangUpWhileCommitting(
  db: Database,
  ask: (signal: AbortSignal) => Promise<Response>,
): Promise<void> {
  const countCut = () => db.$count(undeliveredCalls, eq(undeliveredCalls.isCut, true));
  const before = await countCut();
  await slowCommits(db, 700);
  const agent = new AbortController();
  const asked = ask(agent.signal).then((reply) => reply.text());
  asked.catch(() => {});
  await until(() => isCommitting(db));
  agent.abort();
  await until(async () => (await countCut()) > before);
  await db.execute(sql`drop trigger slow_disk on calls`);
}
