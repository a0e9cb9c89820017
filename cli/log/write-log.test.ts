import { execFileSync } from 'node:child_process';
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parse } from 'csv-parse/sync';
import { eq, sql } from 'drizzle-orm';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { z } from 'zod';
import type { LoggerSetting } from '../../core/run-config/loggers.ts';
import { runs } from '../../store/schema.ts';
import { killLoggerPrograms } from '../../tests/support/harness/logger-programs.ts';
import { useDatabase } from '../../tests/support/harness/use-database.ts';
import { logOnce } from '../../tests/support/scenarios/log-once.ts';
import { LoggedRun } from '../../tests/support/scenarios/logged-run.ts';
import { destinationOf } from './destination.ts';
import { exportMetrics, named } from './export-metrics.ts';
import { followRuns } from './follow-runs.ts';
import { readRunLog } from './logger-entries.ts';
import { LoggerLocks } from './logger-locks.ts';
import { loggerWarnings, readLoggerState } from './logger-state.ts';
import { reasonOf, writeLog } from './write-log.ts';

const store = useDatabase();
const { signal } = new AbortController();
let home = '';
beforeEach(async () => {
  home = await mkdtemp(join(tmpdir(), 'trialgate-log-'));
  await store.db.delete(runs);
});
afterEach(() => rm(home, { recursive: true }));

const rows = z.array(z.record(z.string(), z.string()));

/** Returns the rows of the CSV file of a run's log. */
const csvOf = async (name: string) =>
  rows.parse(parse(await readFile(join(home, 'loggers/csv', name, 'metrics.csv'), 'utf8'), { columns: true }));

/** Returns each row as its step and what it is: the iteration of a train step, or the number of an evaluation. */
const entriesOf = async (name: string) =>
  (await csvOf(name)).map((row) =>
    row['training/iteration']
      ? `${row['step']}: train, gradient ${row['actor/grad_norm']}`
      : `${row['step']}: eval ${row['val/evaluation']}`,
  );

const log = (runId: string, logger: LoggerSetting = { name: 'csv' }) => logOnce({ db: store.db, home, runId, logger });
const stateOf = (runId: string, logger: LoggerSetting = { name: 'csv' }) =>
  readLoggerState(home, runId, destinationOf(home, logger));
const isComplete = (runId: string) => expect.poll(() => stateOf(runId)?.complete).toBeTypeOf('string');

/** Follows all runs while `body` runs. */
async function following(body: () => Promise<void>, mostPrograms = 16): Promise<void> {
  const end = new AbortController();
  const followed = followRuns({ db: store.db, home, pollMs: 50, mostPrograms, report: () => {} }, end.signal);
  try {
    await body();
  } finally {
    end.abort();
    await followed;
  }
}

const written = (runId: string) => stateOf(runId)?.written;

test('a log has each step once and in order, also after its program was killed and the run was ended and resumed', async () => {
  const run = await new LoggedRun(store.db, 'killed').begin(['csv']);
  await run.evaluate(0);
  await run.trainStep(0);
  await following(async () => {
    await expect.poll(() => written('killed')).toBe(2);
    await run.trainStep(1);
    expect(killLoggerPrograms()).toBe(1);
    await expect.poll(() => written('killed')).toBe(3);
    await run.end();
    await isComplete('killed');
    await run.end('running');
    await run.trainStep(2);
    await run.evaluate(3);
    await run.evaluate(3, 1);
    await expect.poll(() => written('killed')).toBe(6);
    await run.end();
    await isComplete('killed');
  });
  expect(await entriesOf('killed')).toEqual([
    '0: eval 0',
    '1: train, gradient 1',
    '2: train, gradient 2',
    '3: train, gradient 3',
    '3: eval 0',
    '3: eval 1',
  ]);
});

test('a row has the metrics of the step, the rollout, the batch and the phases, by verl’s names where it has them', async () => {
  const run = await new LoggedRun(store.db, 'names').begin();
  await run.trainStep(0);
  await run.evaluate(1);
  await run.end();
  await log('names');
  const [step = {}, evaluation = {}] = await csvOf('names');
  expect(step).toMatchObject({
    step: '1',
    'training/global_step': '1',
    'training/policy_version': '1',
    'actor/grad_norm': '1',
    'train/reward_mean': '0.5',
    'rollout/reward_mean': '0.5',
    'rollout/pass_rate': '0.5',
    'rollout/trials/scored': '2',
    'batch/staleness_mean': '0',
    'timing_s/gen': '30',
    'timing_s/update_weights': '4',
    'val/reward_mean': '',
  });
  expect(evaluation).toMatchObject({ step: '1', 'val/reward_mean': '0.5', 'val/pass@1': '0.5', 'val/pass@2': '1' });
});

test('a redo begins a log of its own with the earlier steps, so that neither log has a step twice; a late logger has the newest', async () => {
  const run = await new LoggedRun(store.db, 'again').begin(['csv']);
  await run.trainStep(0);
  await run.trainStep(1);
  await following(async () => {
    await expect.poll(() => written('again')).toBe(2);
    await run.redo(1);
    await run.trainStep(1, 3, { take: 2, parent: 1 });
    await expect.poll(() => stateOf('again')).toMatchObject({ name: 'again@3', written: 2 });
    await run.trainStep(2, 4, { parent: 3 });
    await run.end();
    await isComplete('again');
  });
  const newest = ['1: train, gradient 1', '2: train, gradient 3', '3: train, gradient 4'];
  expect(await entriesOf('again')).toEqual(['1: train, gradient 1', '2: train, gradient 2']);
  expect(await entriesOf('again@3')).toEqual(newest);
  await rm(join(home, 'loggers'), { recursive: true });
  await log('again');
  await log('again');
  expect(await entriesOf('again@3')).toEqual(newest);
});

test('a fork has a log of its own, from its own first step on', async () => {
  const run = await new LoggedRun(store.db, 'fork').begin([], 'first@2');
  await run.trainStep(0);
  await run.end();
  await log('fork');
  expect(await entriesOf('fork')).toEqual(['1: train, gradient 1']);
});

const MISSING = /^it has the metrics, but traces are missing: /;

test('where traces fail, all metrics are written, and the log is complete once it is written without traces', async () => {
  const run = await new LoggedRun(store.db, 'traced').begin();
  await run.trainStep(0);
  await run.trainStep(1);
  await run.end();
  // The program of CSV takes no traces.
  const destination = { ...destinationOf(home, { name: 'csv' }), traces: 8 };
  const read = () => readRunLog(store.db, 'traced');
  const locks = new LoggerLocks(store.db);
  const options = { db: store.db, locks, home, runId: 'traced', read, report: console.error };
  try {
    await expect(writeLog({ ...options, destination }, signal)).rejects.toThrow(MISSING);
    expect(await entriesOf('traced')).toEqual(['1: train, gradient 1', '2: train, gradient 2']);
    expect(stateOf('traced')).toMatchObject({ written: 2, complete: null, reason: expect.stringMatching(MISSING) });
    await writeLog({ ...options, destination: { ...destination, traces: 0 } }, signal);
    expect(stateOf('traced')).toMatchObject({ written: 2, complete: expect.any(String), reason: null });
  } finally {
    locks.close();
  }
});

test('another bound of traces is the same place, so that no second program writes there', () => {
  const place = (more: object) => destinationOf(home, { name: 'mlflow', tracking_uri: 'http://host:5000', ...more });
  expect(place({})).toMatchObject({ traces: 8 });
  expect(place({ traces: 0 })).toEqual({ ...place({}), traces: 0 });
});

/** Puts a file in the way of the folder of the run file's logger. */
const block = async () => {
  await mkdir(join(home, 'loggers'), { recursive: true });
  await writeFile(join(home, 'loggers/csv'), '');
};

test('a logger that fails is named in `status` with its reason, and catches up when the cause is gone', async () => {
  const run = await new LoggedRun(store.db, 'full').begin(['csv']);
  await run.trainStep(0);
  await block();
  await following(async () => {
    await expect
      .poll(() => loggerWarnings(home))
      .toEqual([
        expect.stringMatching(
          /^the logger csv of run full has failed since .*(NotADirectory|FileExists)Error.*The run goes on/,
        ),
      ]);
    await rm(join(home, 'loggers/csv'));
    await expect.poll(() => loggerWarnings(home)).toEqual([]);
  });
  expect(await entriesOf('full')).toEqual(['1: train, gradient 1']);
});

test('a run that is deleted while its logger fails is not tried again, and its warning goes', async () => {
  const run = await new LoggedRun(store.db, 'gone').begin(['csv']);
  await run.trainStep(0);
  await block();
  await following(async () => {
    await expect.poll(() => loggerWarnings(home).length).toBe(1);
    await store.db.delete(runs).where(eq(runs.id, 'gone'));
    await expect.poll(() => loggerWarnings(home)).toEqual([]);
  });
  expect(stateOf('gone')).toBeNull();
});

test('a second process writes nothing while another has the logger of a run', async () => {
  await new LoggedRun(store.db, 'held').begin();
  const locks = new LoggerLocks(store.db);
  const { logger, digest } = destinationOf(home, { name: 'csv' });
  const lock = await locks.take(`logger ${logger} ${digest} held`);
  expect(await log('held')).toBeNull();
  await lock?.release();
  expect(await log('held')).toMatchObject({ written: 0 });
  locks.close();
});

test('a process has all its locks on one connection, of which each is released alone', async () => {
  const [ours, theirs] = [new LoggerLocks(store.db), new LoggerLocks(store.db)];
  const [first, second] = await Promise.all([ours.take('first lock'), ours.take('second lock')]);
  expect(await ours.take('first lock')).toBeNull();
  await first?.release();
  const taken = await theirs.take('first lock');
  expect([taken === null, await theirs.take('second lock')]).toEqual([false, null]);
  await expect(second?.confirmHeld()).resolves.toBeUndefined();
  ours.close();
  theirs.close();
});

test('when the connection with the locks is lost, their holders learn it and others can have them', async () => {
  const locks = new LoggerLocks(store.db);
  const lock = await locks.take('lost lock');
  await store.db.execute(sql`
    select pg_terminate_backend(pid) from pg_locks
    where locktype = 'advisory' and database = (select oid from pg_database where datname = current_database())`);
  await expect.poll(() => lock?.lost.aborted).toBe(true);
  await expect(lock?.confirmHeld()).rejects.toThrow('was lost, and with it the lock');
  const again = await locks.take('lost lock');
  await lock?.release();
  await expect(again?.confirmHeld()).resolves.toBeUndefined();
  locks.close();
});

test('a stop while a logger hangs ends its program', async () => {
  const run = await new LoggedRun(store.db, 'hung').begin(['csv']);
  await run.trainStep(0);
  // Nobody writes to the pipe, so that its reader waits.
  await mkdir(join(home, 'loggers/csv/hung'), { recursive: true });
  execFileSync('mkfifo', [join(home, 'loggers/csv/hung/metrics.csv')]);
  await following(async () => {
    await expect.poll(() => readFile(join(home, 'loggers/csv/hung/run.txt'), 'utf8').catch(() => '')).toMatch(/^hung-/);
  });
  expect(killLoggerPrograms()).toBe(0);
});

test.each(['cancelled', 'blocked'] as const)(
  'an evaluation of a run that was %s meanwhile is written when it is complete, and what came after it behind it',
  async (status) => {
    const run = await new LoggedRun(store.db, status).begin(['csv']);
    await run.trainStep(0);
    await run.evaluateInPart(1);
    await run.end(status);
    await following(async () => {
      await expect.poll(() => written(status)).toBe(1);
      if (status === 'cancelled') await isComplete(status);
      await run.end('running');
      await expect.poll(() => stateOf(status)?.complete).toBeNull();
      await run.finishEvaluation(1);
      await run.trainStep(1);
      await run.end();
      await isComplete(status);
    });
    expect(await entriesOf(status)).toEqual(['1: train, gradient 1', '1: eval 0', '2: train, gradient 2']);
    const [, evaluation] = await csvOf(status);
    expect(evaluation).toMatchObject({ 'val/trials/scored': '2' });
  },
);

test('what another place of the same logger has does not count for the one in the run file', async () => {
  const run = await new LoggedRun(store.db, 'twice').begin(['csv']);
  await run.trainStep(0);
  await run.end();
  expect(await log('twice', { name: 'csv', folder: join(home, 'elsewhere') })).toMatchObject({ written: 1 });
  expect(stateOf('twice')).toBeNull();
  await following(() => isComplete('twice'));
  expect(await entriesOf('twice')).toEqual(['1: train, gradient 1']);
});

test('a run whose stored loggers cannot be read, and a limit on programs, keep no other run from its loggers', async () => {
  const names = ['one', 'two', 'bad'];
  for (const name of names) {
    const run = await new LoggedRun(store.db, name).begin(['csv']);
    await run.trainStep(0);
    await run.end();
  }
  await store.db
    .update(runs)
    .set({ config: sql`jsonb_set(${runs.config}, '{loggers}', '[{"name": "neptune"}]')` })
    .where(eq(runs.id, 'bad'));
  await following(async () => {
    await isComplete('one');
    await isComplete('two');
  }, 1);
  expect(stateOf('bad')).toBeNull();
});

test('while an iteration is made again once more, its log is that of the newest branch', async () => {
  const run = await new LoggedRun(store.db, 'more').begin();
  await run.trainStep(0);
  await run.trainStep(1);
  await run.redo(1);
  await run.trainStep(1, 3, { take: 2, parent: 1 });
  await run.redo(1);
  expect(await log('more')).toMatchObject({ name: 'more@3' });
  await run.trainStep(1, 4, { take: 3, parent: 1 });
  expect(await log('more')).toMatchObject({ name: 'more@4', written: 2 });
});

test('an export to one logger that fails writes the others, and fails with the reason', async () => {
  const run = await new LoggedRun(store.db, 'some').begin();
  await run.trainStep(0);
  const printed = vi.spyOn(console, 'log').mockImplementation(() => {});
  await writeFile(join(home, 'in-the-way'), '');
  const to = ['csv', `{name: tensorboard, folder: ${join(home, 'in-the-way')}}`];
  const blocked = exportMetrics(store.db, home, { runId: 'some', to, follow: false }, new AbortController().signal);
  await expect(blocked).rejects.toThrow();
  expect(printed).toHaveBeenCalledWith('csv: has 1 entries of some');
  printed.mockRestore();
});

test('a folder on the command line counts from where the command runs, and what is not YAML is refused with what to write', () => {
  expect(named(['{name: csv, folder: metrics}'], [])).toEqual([
    { name: 'csv', folder: join(process.cwd(), 'metrics') },
  ]);
  expect(() => named(['{name: csv'], [])).toThrow('is neither a name nor YAML');
});

test('the reason of a failure has no password of an address', () => {
  expect(reasonOf(new Error('no answer from http://me:secret@host:5000/api\nat'))).toBe(
    'no answer from http://host:5000/api at',
  );
});

test('the log of a deleted run is not continued by a new run of the same name', async () => {
  const run = await new LoggedRun(store.db, 'same').begin();
  await run.trainStep(0);
  await log('same');
  await writeFile(join(home, 'loggers/csv/same/run.txt'), 'same-earlier');
  await expect(log('same')).rejects.toThrow(/has the log of an earlier run of the name same: move or remove it/);
});
