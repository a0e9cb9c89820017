import { createHash } from 'node:crypto';
import { expect, test } from 'vitest';
import type { Fault } from '../../tests/support/fakes/fake-engine.ts';
import { ASK, eventually, readStream, useGatewayOnServer } from '../../tests/support/harness/gateways.ts';
import { countersOf } from '../../tests/support/harness/counters-of.ts';

const gateway = useGatewayOnServer({ settings: { storeWaitMs: 20_000, holdMs: 300, idleMs: 2_000 } });

/** Faults after which an agent still sees the end of a plain reply, and of a stream. */
const ENDS: Record<Exclude<Fault, 'cut_head'>, [boolean, boolean]> = {
  none: [true, true],
  no_ids: [true, true],
  wrong_lengths: [true, true],
  miscounted: [true, true],
  error_event: [true, false],
  status_500: [false, false],
  dead: [false, false],
  status_503: [false, false],
  context_too_long: [false, false],
  bad_request: [false, false],
  no_tool_parser: [false, false],
  cut: [false, false],
  hang: [false, false],
  not_json: [false, false],
  // This fault is last, because an engine that refuses gets no calls for a while.
  refuse: [false, false],
};

test('after a load with every engine fault, the gateway’s counters, its record, the engine’s log and what agents saw agree', async () => {
  const trial = await gateway.trial();
  /** The name of each request, and whether its agent saw it end. */
  const asked = new Map<string, boolean>();
  /** The names of requests by their digest, because the record of a request that the engine refused has little else. */
  const names = new Map<string, string>();
  const ask = async (user: string, stream: boolean, signal?: AbortSignal): Promise<void> => {
    asked.set(user, false);
    const headers = { authorization: `Bearer ${trial.key}` };
    const body = JSON.stringify({ ...ASK, user, stream });
    names.set(createHash('sha256').update(body).digest('hex'), user);
    const reply = await trial.chat(body, { signal, headers });
    const seen = stream
      ? await readStream(reply)
      : { text: await reply.text(), done: reply.status === 200, broken: false };
    asked.set(user, seen.done && !seen.broken && seen.text.includes('"finish_reason":"stop"'));
  };
  const load = (what: string, signal?: AbortSignal) =>
    Promise.allSettled(Array.from({ length: 6 }, (_, i) => ask(`${what} ${i}`, i % 2 === 1, signal)));

  let restarted: Promise<void> | null = null;
  gateway.engine.beforeEnd = () =>
    void (restarted ??= gateway.postgres.stop('kill').then(() => gateway.postgres.start()));
  await load('postgres restarts');
  await restarted;
  expect([...asked.values()]).toEqual(Array(6).fill(true));

  const [leaving, end] = [new AbortController(), Promise.withResolvers<void>()];
  gateway.engine.beforeEnd = () => end.promise;
  const left = load('agent leaves', leaving.signal);
  const isAsked = ({ body }: { body: Record<string, unknown> }) => String(body.user).startsWith('agent leaves');
  await eventually(() => gateway.engine.seen.filter(isAsked).length === 6);
  leaving.abort();
  await left;
  await eventually(() => gateway.engine.seen.filter(isAsked).every(({ aborted }) => aborted));
  end.resolve();

  for (const [fault, [plain, stream]] of Object.entries(ENDS) as [Fault, [boolean, boolean]][]) {
    gateway.engine.fault = fault;
    await load(fault);
    expect([fault, ...asked.values()].slice(-2)).toEqual([plain, stream]);
  }
  await eventually(async () => countersOf(await gateway.metrics()).inFlight === 0);

  const rows = await trial.calls();
  const userOf = ({ digest }: (typeof rows)[number]) => names.get(Buffer.from(digest ?? []).toString('hex'));
  expect(rows.map(userOf).toSorted()).toEqual([...asked.keys()].toSorted());
  const recorded = rows.filter(({ status }) => status === 'completed').map(userOf);
  const ended = [...asked].flatMap(([user, sawEnd]) => (sawEnd ? [user] : []));
  expect(recorded.toSorted()).toEqual(ended.toSorted());
  const sent = gateway.engine.seen.filter(({ body, aborted }) => !aborted && ended.includes(String(body.user)));
  expect(sent).toHaveLength(ended.length);
  const isGiven = (user: string) => !user.startsWith('refuse');
  expect(new Set(gateway.engine.seen.map(({ body }) => String(body.user)).filter(isGiven))).toEqual(
    new Set([...asked.keys()].filter(isGiven)),
  );
  const count = (status: string) => rows.filter((row) => row.status === status).length;
  expect(count('cancelled')).toBe(6);
  expect(countersOf(await gateway.metrics())).toEqual({
    accepted: asked.size,
    completed: ended.length,
    failed: count('failed'),
    cancelled: 6,
    inFlight: 0,
  });
});
