import { sql } from 'drizzle-orm';
import { expect, test } from 'vitest';
import { z } from 'zod';
import { ASK, IN_WORKERD, useGateway } from '../../tests/support/harness/gateways.ts';

const gateway = useGateway();
const CALLERS = 32;
const TURNS = 8;

const counted = z.object({ scans: z.coerce.number(), rows: z.coerce.number() });

/** Counts the reads of an attempt's calls and the rows that they returned. PostgreSQL adds a connection's counts when the connection ends. */
async function readsOfAttempts() {
  await gateway.restart();
  const { rows } = await gateway.db.execute(
    sql`select idx_scan as scans, idx_tup_read as rows from pg_stat_user_indexes where indexrelname = 'calls_by_trial'`,
  );
  return counted.parse(rows[0]);
}

async function converse(trial: Awaited<ReturnType<typeof gateway.trial>>, caller: number): Promise<number[]> {
  const messages: unknown[] = [{ role: 'user', content: `caller ${caller}` }];
  const statuses: number[] = [];
  for (let turn = 0; turn < TURNS; turn++) {
    const reply = await trial.chat({ ...ASK, messages });
    statuses.push(reply.status);
    messages.push((await reply.json()).choices?.[0]?.message, { role: 'user', content: `turn ${turn}` });
  }
  return statuses;
}

// In workerd, requests share no promises, so each one reads what is newer than the isolate's memory.
test.skipIf(IN_WORKERD)(
  'a gateway that alone serves a trial of many concurrent callers never reads the trial’s calls back from the store',
  async () => {
    const before = await readsOfAttempts();
    const trial = await gateway.trial();
    const statuses = await Promise.all(Array.from({ length: CALLERS }, (_, caller) => converse(trial, caller)));
    expect(statuses.flat()).toEqual(Array(CALLERS * TURNS).fill(200));
    expect(await readsOfAttempts()).toEqual(before);
    const calls = await trial.calls();
    expect(calls).toHaveLength(CALLERS * TURNS);
    // Each caller's first call branches off or is the trial's first; every other call continues the one before.
    expect(calls.filter((call) => call.parentId === null)).toHaveLength(CALLERS);
  },
);
