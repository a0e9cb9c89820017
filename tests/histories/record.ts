/**
 * Records what `npm test` replays against the workflows as they are (`./replay.test.ts`), beside what is there, for this release.
 *
 *   node tests/histories/record.ts [--only finished,failed]
 */
import proto from '@temporalio/proto';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { gzipSync } from 'node:zlib';
import { taskWith, temporaryHome } from '../support/harness/sandbox-fixtures.ts';
import { REPOSITORY } from '../../core/repository.ts';
import { openDatabase } from '../../store/database.ts';
import { TestPostgres } from '../support/harness/postgres.ts';
import { startTemporal, stopTemporal } from '../support/harness/workflow-worker.ts';
import { anonymous } from './anonymous.ts';
import { scenarios } from './scenarios/index.ts';
import { until } from '../support/harness/until.ts';
import { Stage } from './stage.ts';

const { History } = proto.temporal.api.history.v1;
const { values } = parseArgs({ options: { only: { type: 'string' } } });
const { version } = JSON.parse(readFileSync(path.join(REPOSITORY, 'package.json'), 'utf8')) as { version: string };
const folder = path.join(import.meta.dirname, version);
const LIMIT_MS = 90_000;

const environment = await startTemporal();
const postgres = await TestPostgres.create();
const db = openDatabase(postgres.url);
const seen = new Set<string>();
const courses = new Set<string>();
try {
  await using sandboxes = await temporaryHome();
  const { home } = sandboxes;
  const stage = new Stage({ environment, db, home, task: (await taskWith(home, 'true')).folder });
  mkdirSync(folder, { recursive: true });
  for (const [name, play] of Object.entries(scenarios)) {
    if (values.only && !values.only.split(',').includes(name)) continue;
    const start = Date.now();
    await Promise.race([
      play(stage),
      delay(LIMIT_MS, undefined, { ref: false }).then(() =>
        Promise.reject(new Error(`${name} did not end within ${LIMIT_MS / 1000} s`)),
      ),
    ]);
    const histories = await collect(home);
    const packed = gzipSync(histories.map((history) => `${JSON.stringify(history)}\n`).join(''), { level: 9 });
    writeFileSync(path.join(folder, `${name}.jsonl.gz`), packed);
    const seconds = ((Date.now() - start) / 1000).toFixed(1);
    console.log(`${name}: ${histories.length} executions, ${Math.ceil(packed.length / 1024)} KiB, ${seconds} s`);
  }
} finally {
  await db.$client.end();
  await Promise.all([stopTemporal(environment), postgres.close()]);
}

/** Collects the executions since the last call, once each has ended. It keeps one execution of each sequence of events. */
async function collect(home: string): Promise<unknown[]> {
  const { workflow } = environment.client;
  await until(async () => (await workflow.count("ExecutionStatus = 'Running'")).count === 0);
  const histories: unknown[] = [];
  for await (const { workflowId, runId } of workflow.list()) {
    if (seen.has(runId)) continue;
    seen.add(runId);
    const history = History.fromObject(await workflow.getHandle(workflowId, runId).fetchHistory());
    const course = courseOf(history);
    if (courses.has(course)) continue;
    courses.add(course);
    histories.push(anonymous(History.toObject(history, { enums: String, longs: String, bytes: String }), home));
  }
  return histories.toReversed();
}

function courseOf({ events }: proto.temporal.api.history.v1.History): string {
  const steps = events.map((event) => {
    const {
      workflowExecutionStartedEventAttributes: started,
      activityTaskScheduledEventAttributes: activity,
      workflowExecutionSignaledEventAttributes: signal,
    } = event;
    return `${event.eventType} ${started?.workflowType?.name ?? activity?.activityType?.name ?? signal?.signalName ?? ''}`;
  });
  return steps.join('\n');
}
