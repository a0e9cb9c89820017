import { sql } from 'drizzle-orm';
import { expect, test } from 'vitest';
import { sealAttempt } from '../../store/queries/seal-attempt.ts';
import { runs } from '../../store/schema.ts';
import { asMetrics, Counters } from '../calls/counters.ts';
import { ASK, eventually, useGateway } from '../../tests/support/harness/gateways.ts';

const gateway = useGateway();

test('the metric of calls in flight is a count of its own, not the accepted calls less those that ended', () => {
  const counters = Object.assign(new Counters(), { accepted: 3, completed: 1 });
  expect(asMetrics(counters, [])).toContain('\ntrialgate_calls_in_flight 0\n');
});

test('the metrics count every accepted call once, by the status with which it was recorded', async () => {
  const trial = await gateway.trial({ budgets: { calls: 5 } });
  for (let i = 0; i < 3; i++) await (await trial.chat({ ...ASK, stream: i === 1 })).text();
  gateway.engine.fault = 'status_500';
  await trial.chat(ASK);
  gateway.engine.fault = 'none';
  gateway.engine.delay = 50;
  const leaving = new AbortController();
  const left = trial
    .chat({ ...ASK, stream: true }, { signal: leaving.signal, headers: { authorization: `Bearer ${trial.key}` } })
    .then((reply) => reply.text());
  await eventually(() => gateway.engine.seen.length === 6);
  expect((await gateway.metrics()).trialgate_calls_in_flight).toBe(1);
  leaving.abort();
  await left.catch(() => {});
  await eventually(async () => (await gateway.metrics()).trialgate_calls_in_flight === 0);
  gateway.engine.delay = 0;
  await trial.chat(ASK);
  // The budget is used up, so these are recorded as failed and no engine is asked.
  for (let i = 0; i < 2; i++) await trial.chat(ASK);
  const counted = await gateway.metrics();
  const { rows } = await gateway.db.execute<{ status: string; n: number }>(
    sql`select status, count(*)::int n from calls where trial_id = ${trial.id} group by 1`,
  );
  for (const { status, n } of rows)
    expect([status, counted[`trialgate_calls_total{status="${status}"}`]]).toEqual([status, n]);
  expect(counted).toMatchObject({ trialgate_calls_accepted_total: 8, trialgate_calls_in_flight: 0 });
  expect(gateway.engine.seen).toHaveLength(7); // The call that got a 500 was sent twice.
});

test('the metrics give holders of the admin key the infrastructure errors of runs under way by task and policy version', async () => {
  await gateway.db.insert(runs).values({ id: 'run', config: {} });
  for (const [trialIndex, outcome] of [
    [0, 'scored'],
    [1, 'infra_error'],
  ] as const) {
    const { id } = await gateway.trial({ runId: 'run', trialIndex, task: '/tasks/a "b"', policyVersion: 3 });
    await sealAttempt(gateway.db, { trialId: id, outcome });
  }
  const told = await (await gateway.admin('GET', '/metrics')).text();
  for (const line of [
    'trialgate_attempts_by_policy_total{run="run",policy_version="3"} 2',
    'trialgate_infra_errors_by_policy_total{run="run",policy_version="3"} 1',
    'trialgate_attempts_by_task_total{run="run",task="/tasks/a \\"b\\""} 2',
    'trialgate_infra_errors_by_task_total{run="run",task="/tasks/a \\"b\\""} 1',
  ])
    expect(told.split('\n')).toContain(line);
  expect(Object.keys(await gateway.metrics()).filter((name) => name.includes('infra'))).toEqual([]);
});
