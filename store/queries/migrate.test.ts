import { createHash } from 'node:crypto';
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { is, sql } from 'drizzle-orm';
import { migrate as apply } from 'drizzle-orm/node-postgres/migrator';
import { PgTable } from 'drizzle-orm/pg-core';
import { afterEach, expect, test } from 'vitest';
import { openDatabase, type Database } from '../database.ts';
import * as schema from '../schema.ts';
import { FIRST_RELEASE_ROWS } from '../../tests/support/scenarios/first-release-rows.ts';
import { useServer } from '../../tests/support/harness/use-database.ts';
import { isUnderWay } from './calls-under-way.ts';
import { readTrial } from './find-trials.ts';
import { listTrials } from './list-trials.ts';
import { migrate } from './migrate.ts';
import { readCall } from './read-call.ts';
import { readCalls } from './read-calls.ts';
import { readReplicas } from './read-replicas.ts';
import { readTrainableCalls } from './read-trainable-calls.ts';

const MIGRATIONS = join(import.meta.dirname, '../../migrations');

const store = useServer();
const undo: (() => unknown)[] = [];
afterEach(async () => {
  for (const each of undo.splice(0).toReversed()) await each();
});

/** Makes a new database on the test's server with the tables of the first migration, after `change` has edited that migration. */
async function firstRelease(
  name: string,
  change = (text: string) => text,
  when?: number,
): Promise<{ db: Database; url: string }> {
  const folder = mkdtempSync(join(tmpdir(), 'trialgate-migrations-'));
  undo.push(() => rmSync(folder, { recursive: true }));
  cpSync(MIGRATIONS, folder, { recursive: true });
  const journal: { entries: { when: number }[] } = JSON.parse(readFileSync(join(folder, 'meta/_journal.json'), 'utf8'));
  const entries = journal.entries.slice(0, 1).map((entry) => ({ ...entry, when: when ?? entry.when }));
  writeFileSync(join(folder, 'meta/_journal.json'), JSON.stringify({ ...journal, entries }));
  const first = join(folder, '0000_initial.sql');
  writeFileSync(first, change(readFileSync(first, 'utf8')));
  await store.db.execute(sql.raw(`create database ${name}`));
  const url = store.postgres.url.replace(/\/postgres$/, `/${name}`);
  const db = openDatabase(url);
  undo.push(() => db.$client.end());
  await apply(db, { migrationsFolder: folder });
  return { db, url };
}

test('the first migration stays as it was released: a change is a new migration (npm run migrations)', () => {
  const digest = createHash('sha256')
    .update(readFileSync(join(MIGRATIONS, '0000_initial.sql')))
    .digest('hex');
  expect(digest).toBe('615beedfd9d5b3079e3152c91402742656a0e0629fe41168bd4ff281e13a99e4');
});

test('a database of the first release with rows in every table is brought up to date, and its rows are read as they were written', async () => {
  const { db, url } = await firstRelease('first_release');
  await db.$client.query(FIRST_RELEASE_ROWS);
  const tables = await db.execute<{ name: string }>(
    sql`select table_name as name from information_schema.tables where table_schema = 'public'`,
  );
  for (const { name } of tables.rows)
    expect(await db.$count(sql.identifier(name)), `rows in ${name}`).toBeGreaterThan(0);

  await migrate(url);

  for (const table of Object.values(schema).filter((each) => is(each, PgTable))) await db.select().from(table).limit(1);
  expect(await readTrial(db, 'first-0.1-0-0')).toMatchObject({
    runId: 'first',
    groupId: 'first/0.1/0',
    trialIndex: 0,
    task: 'tasks/add',
    agent: 'shell',
    attempt: 2,
    status: 'completed',
    sampling: { temperature: 0.7 },
    budgets: { calls: 20, tokens: 4096 },
    recorded: 2,
    usedCalls: 2,
    usedTokens: 5,
    usedBytes: 0,
    reserved: { one: { tokens: 64, until: 1_795_000_000 } },
    policyVersion: 0,
    batchIteration: 0,
    batchTake: 1,
    outcome: 'scored',
    rewards: { tests: 0.5 },
    reason: null,
  });
  expect((await listTrials(db, { runId: 'first', outcome: 'scored' }, { limit: 10 })).map(({ id }) => id)).toEqual([
    'first-0.1-0-0',
  ]);
  const attempt = { trialId: 'first-0.1-0-0', attempt: 2 };
  const [first, second] = await readCalls(db, attempt);
  expect(first).toMatchObject({
    request: { model: 'policy', messages: [{ role: 'user', content: 'Add 1 and 2.' }] },
    response: { choices: [{ message: { role: 'assistant', content: '3' } }] },
  });
  expect(second).toMatchObject({
    request: {
      model: 'policy',
      messages: [
        { role: 'user', content: 'Add 1 and 2.' },
        { role: 'assistant', content: '3' },
        { role: 'user', content: 'Sure? \u{1f914}' },
      ],
    },
    protocol: 'chat_completions',
    stream: true,
    continuation: 'drifted',
    engine: 'unix:/engine.sock',
    weightVersion: 'first@0',
    versionSpans: [
      { version: 0, start: 0, end: 1 },
      { version: 1, start: 1, end: 2 },
    ],
  });
  expect(second?.promptTokenIds).toEqual(new Int32Array([1, 2, 3, 4, 5]));
  expect(await readCall(db, { ...attempt, id: second?.id ?? '' })).toMatchObject({
    httpStatus: 200,
    request: second?.request,
  });
  expect(await readTrainableCalls(db, attempt)).toEqual([
    {
      id: first?.id,
      turn: 0,
      promptTokenIds: new Int32Array([1, 2, 3]),
      completionTokenIds: new Int32Array([4]),
      logprobs: new Float32Array([-0.5]),
      samplingMask: null,
      policyVersions: 0,
      temperature: 0.7,
    },
    {
      id: second?.id,
      turn: 1,
      promptTokenIds: new Int32Array([1, 2, 3, 4, 5]),
      completionTokenIds: new Int32Array([6, 7]),
      logprobs: new Float32Array([-0.25, -2]),
      samplingMask: null,
      policyVersions: [0, 1],
      temperature: 0.7,
    },
  ]);
  expect(await readReplicas(db)).toMatchObject([
    { url: 'unix:/engine.sock', pool: 'deployment', runId: 'first', weightVersion: 'first@0', inRotation: false },
  ]);
  expect(await isUnderWay(db, 'first-0.1-0-0 2 digest', 2)).toBe(true);
  expect(await db.select().from(schema.runs)).toMatchObject([
    {
      id: 'first',
      config: { iterations: 3 },
      status: 'blocked',
      reason: 'the disk is full',
      nextVersion: 2,
      forkedFrom: 'base@1',
      rescores: null,
      createdAt: new Date('2026-11-01T10:00:00Z'),
    },
  ]);
  expect(await db.select().from(schema.iterations)).toMatchObject([
    {
      runId: 'first',
      iteration: 0,
      take: 1,
      status: 'done',
      policyVersion: 0,
      trainedVersion: 1,
      seconds: { train: 21.3 },
    },
  ]);
  expect(await db.select().from(schema.groups)).toMatchObject([
    {
      id: 'first/0.1/0',
      kind: 'train',
      ordinal: 0,
      task: 'tasks/add',
      size: 4,
      dropped: 'no_spread',
      batchIteration: 0,
      batchTake: 1,
    },
  ]);
  expect(await db.select().from(schema.batches)).toMatchObject([
    {
      runId: 'first',
      sha256: 'ab'.repeat(32),
      path: 'batches/ab.arrow',
      samples: 3,
      trials: 2,
      metrics: { samples: 3 },
    },
  ]);
  expect(await db.select().from(schema.policyVersions)).toMatchObject([
    {
      version: 1,
      parentVersion: 0,
      stepKey: 'key',
      checkpoint: 'checkpoints/1',
      canary: { token_ids: [1, 2], logprobs: [-1] },
      canaryTolerance: 0.125,
      metrics: { loss: 0.5 },
    },
  ]);
  expect(await db.select().from(schema.publications)).toMatchObject([
    { version: 1, replica: 'unix:/engine.sock', weightVersion: 'first@1', checksum: 'sum', canaryDifference: 0.0625 },
  ]);
  expect(await db.select().from(schema.quarantinedTasks)).toMatchObject([
    { runId: 'first', task: 'tasks/broken', reason: 'its verifier crashed three times' },
  ]);
  expect(await db.select().from(schema.attempts).orderBy(schema.attempts.attempt)).toMatchObject([
    {
      trialId: 'first-0.1-0-0',
      attempt: 1,
      outcome: 'infra_error',
      reason: 'the engine was lost',
      host: 'here',
      seconds: { agent: 1.5 },
    },
    { trialId: 'first-0.1-0-0', attempt: 2, outcome: 'scored', endedAt: new Date('2026-11-01T10:05:00Z') },
  ]);
});

test('a migration does not change tables that an incompatible release of Trialgate made, and its error says what to do', async () => {
  const { db, url } = await firstRelease(
    'before',
    (text) => text.replace('"forked_from" text,', ''),
    1_795_000_000_000,
  );
  await db.$client.query(`insert into runs (id, config) values ('old', '{}')`);
  await expect(migrate(url)).rejects.toMatchObject({
    code: 'missing_prerequisite',
    message: expect.stringMatching(/migrations differ.*Export what you need.*TRIALGATE_HOME/),
  });
  expect((await db.$client.query('select id from runs')).rows).toEqual([{ id: 'old' }]);
});

test('a migration leaves a database that is up to date as it is', async () => {
  const { db, url } = await firstRelease('twice');
  await migrate(url);
  const applied = () => db.execute(sql`select hash, created_at from drizzle.__drizzle_migrations order by id`);
  const before = (await applied()).rows;
  await migrate(url);
  expect((await applied()).rows).toEqual(before);
});
