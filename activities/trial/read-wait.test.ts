import { randomUUID } from 'node:crypto';
import { expect, test } from 'vitest';
import { runConfig } from '../../core/run-config/run-config.ts';
import { noteLongCalls } from '../../store/queries/long-calls.ts';
import { openAttempt } from '../../store/queries/open-attempt.ts';
import { recordCalls } from '../../store/queries/record-calls.ts';
import { sealAttempt } from '../../store/queries/seal-attempt.ts';
import { replicas, runs } from '../../store/schema.ts';
import { useDatabase } from '../../tests/support/harness/use-database.ts';
import { callRecord } from '../../tests/support/scenarios/call-record.ts';
import { awaitEngineRoom } from './await-engine-room.ts';
import { readGatewayEvidence } from './read-gateway-evidence.ts';
import { readWait } from './read-wait.ts';

const store = useDatabase();
const ENGINE = 'http://e';
let serial = 0;
const ago = (seconds: number) => new Date(Date.now() - seconds * 1000);

/** Opens trials of a run of its own. */
async function trialsOf(...names: string[]) {
  const runId = `run${++serial}`;
  await store.db
    .insert(runs)
    .values({ id: runId, config: runConfig.parse({ model: 'm', tasks: ['t'], iterations: 1 }) });
  const all = names.map((name) => ({ runId, trialId: `${runId}-${name}`, attempt: 1 }));
  for (const { trialId } of all) await openAttempt(store.db, { trialId, attempt: 1, runId });
  return all;
}
type Trial = Awaited<ReturnType<typeof trialsOf>>[number];

const waits = (trial: Trial | undefined, seconds: number, given: object = {}) =>
  noteLongCalls(store.db, [
    {
      ...{
        callId: randomUUID(),
        trialId: '',
        attempt: 1,
        runId: null,
        engine: ENGINE,
        stream: true,
        constrained: false,
      },
      ...{ startedAt: ago(seconds), firstTokenAt: null, tokens: 0 },
      ...trial,
      ...given,
    },
  ]);

/** Records a call that ended just now. */
const answered = (trial: Trial | undefined, { seconds = 1, tokens = 100, first = 0.1 } = {}) =>
  recordCalls(store.db, [
    callRecord({
      trialId: trial?.trialId ?? '',
      stream: true,
      engine: ENGINE,
      startedAt: ago(seconds),
      firstTokenAt: ago(seconds - first),
      endedAt: new Date(),
      choice: { completionTokenIds: new Int32Array(tokens) },
    }),
  ]);
const waitOf = ({ trialId = '', attempt = 1 }: Partial<Trial> = {}) => readWait(store)({ trialId, attempt });

test('a call that waits now counts until now, and one that waited counts until its first token', async () => {
  const [a, b] = await trialsOf('a', 'b');
  await waits(a, 20);
  await answered(b, { seconds: 30, first: 29 });
  // A first token may take five seconds in a pool where it takes long.
  expect((await waitOf(a)).seconds).toBeCloseTo(15, -0.5);
  expect((await waitOf(b)).seconds).toBeCloseTo(24, -0.5);
  expect((await waitOf(a)).isExcuse).toBe(true);
});

test('a wait of this trial alone excuses two attempts, and more only while the engines answer no call of the run', async () => {
  const [a] = await trialsOf('a');
  const key = { trialId: a?.trialId ?? '', runId: a?.runId };
  for (const attempt of [1, 2]) {
    await sealAttempt(store.db, { ...key, attempt, outcome: 'infra_error', evidence: 'engine', reason: 'it waited' });
    await openAttempt(store.db, { ...key, attempt: attempt + 1 });
  }
  const third = { ...a, attempt: 3 };
  await waits(a, 20, { attempt: 3 });
  expect((await waitOf(third)).isExcuse).toBe(true);
  const record = callRecord({ trialId: key.trialId, attempt: 3, engine: ENGINE, startedAt: ago(1) });
  await recordCalls(store.db, [record]);
  expect(await waitOf(third)).toMatchObject({ isExcuse: false });
});

test('a trial is not begun while calls of others wait long for every engine of its run', async () => {
  const [a] = await trialsOf('a');
  const runId = a?.runId ?? '';
  const room = async () => {
    let hasWaited = false;
    const controller = new AbortController();
    const onWait = () => {
      hasWaited = true;
      controller.abort(new Error('it waits'));
    };
    await awaitEngineRoom(store.db, runId, { signal: controller.signal, onWait }).catch(() => {});
    return hasWaited;
  };
  await store.db.insert(replicas).values([ENGINE, 'http://f'].map((url) => ({ url: `${url}${serial}`, runId })));
  const [e, f] = [`${ENGINE}${serial}`, `http://f${serial}`];
  expect(await room()).toBe(false);
  await waits(a, 40, { engine: e });
  expect(await room()).toBe(false);
  await waits(a, 40, { engine: f });
  expect(await room()).toBe(true);
});

test.each([
  ['others waited too', true, { fault: 'engine', reason: 'it gave up a call after 40 s', excusesOnlyCrash: true }],
  ['no other trial waited', false, null],
])(
  'a call that the agent’s client gave up after a long wait is evidence against the engine only if others waited too: %s',
  async (_, shared, unanswered) => {
    const [a, b] = await trialsOf('a', 'b');
    await waits(b, shared ? 60 : 0.1);
    await recordCalls(store.db, [
      callRecord({
        trialId: a?.trialId ?? '',
        status: 'cancelled',
        stream: true,
        engine: ENGINE,
        startedAt: ago(41),
        endedAt: ago(1),
      }),
    ]);
    const ended = { trialId: a?.trialId ?? '', attempt: 1, gatewayFailedAt: null };
    expect((await readGatewayEvidence(store.db, ended)).unanswered).toEqual(unanswered);
  },
);
