import { Client, Connection } from '@temporalio/client';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, onTestFinished, test } from 'vitest';
import { logRecord } from '../core/log-record.ts';
import { REPOSITORY } from '../core/repository.ts';
import { TASK_QUEUE } from '../core/task-queues.ts';
import { holdFreePort } from '../core/free-port.ts';
import { until } from '../tests/support/harness/until.ts';
import { useDatabase } from '../tests/support/harness/use-database.ts';
import { useTemporal } from '../tests/support/harness/use-temporal.ts';
import { EXIT } from './exit.ts';
import { INSTALLS } from './folders.ts';

const environment = useTemporal();
const store = useDatabase();
const folder = mkdtempSync(join(tmpdir(), 'trialgate-worker-metrics-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

function startWorker(metricsAddress: string, logFormat: 'text' | 'json') {
  const settings = {
    only: 'workflows',
    'temporal-address': environment.address,
    'database-url': store.postgres.url,
    'gateway-url': 'http://127.0.0.1:1',
    secret: 'a secret of sixteen',
    home: join(folder, 'home'),
    'metrics-address': metricsAddress,
    'log-format': logFormat,
  };
  const args = Object.entries(settings).flatMap(([name, value]) => [`--${name}`, value]);
  const child = spawn(INSTALLS.node, [INSTALLS.main, 'worker', ...args], { stdio: ['ignore', 'pipe', 'pipe'] });
  let said = '';
  for (const stream of [child.stdout, child.stderr]) stream.on('data', (chunk: Buffer) => (said += chunk.toString()));
  return { child, ended: once(child, 'close'), said: () => said };
}

test('a worker with `metrics_address` answers Prometheus with its slots and queues, and one whose address is taken says so; its metrics are those that rules and board ask for; with `log_format: json` it prints nothing but records', async () => {
  const held = await holdFreePort('127.0.0.1');
  const address = `127.0.0.1:${held.port}`;
  const refused = startWorker(address, 'text');
  onTestFinished(() => void refused.child.kill('SIGKILL'));
  expect((await refused.ended)[0]).toBe(EXIT.badInput);
  expect(refused.said()).toMatch(`metrics_address: nothing can listen on ${address}`);
  await held.close();
  const worker = startWorker(address, 'json');
  const connection = await Connection.connect({ address: environment.address });
  // Its first task fails, and has waited in the queue.
  const workflow = await new Client({ connection }).workflow.start('of no such type', {
    taskQueue: TASK_QUEUE,
    workflowId: 'waits',
  });
  let metrics = '';
  try {
    await until(async () => {
      const reply = await fetch(`http://${address}/metrics`).catch(() => null);
      metrics = (await reply?.text()) ?? '';
      return /^temporal_workflow_task_schedule_to_start_latency_seconds_bucket\{.*task_queue="trialgate"/m.test(
        metrics,
      );
    }, 60_000);
  } finally {
    await workflow.terminate();
    await connection.close();
    worker.child.kill('SIGTERM');
    await worker.ended;
  }
  // What rules and board ask of workers. Activities are counted by an activity worker.
  const asked = ['rules.yaml', 'board.json']
    .flatMap((name) => readFileSync(join(REPOSITORY, 'deploy/prometheus', name), 'utf8').match(/\btemporal_\w+/g) ?? [])
    .filter((name) => !name.includes('activity'));
  expect(asked.length).toBeGreaterThan(2);
  expect(asked.filter((name) => !metrics.includes(`\n${name}{`))).toEqual([]);
  const records = worker
    .said()
    .split('\n')
    .filter(Boolean)
    .map((line) => logRecord.parse(JSON.parse(line)));
  expect(records).toContainEqual({
    time: expect.any(String),
    level: 'info',
    process: 'workflow-worker',
    pid: worker.child.pid,
    message: 'worker ready: trialgate',
  });
});
