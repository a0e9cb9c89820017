import { eq } from 'drizzle-orm';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { runs, trials } from '../../store/schema.ts';
import { useDatabase } from '../../tests/support/harness/use-database.ts';
import { LoggedRun } from '../../tests/support/scenarios/logged-run.ts';
import type { Destination } from './destination.ts';
import { readRunLog } from './logger-entries.ts';
import type { TraceFailure } from './logger-process.ts';
import { TrialTracer } from './trace-trials.ts';

const store = useDatabase();
const { signal } = new AbortController();
beforeEach(async () => {
  await store.db.delete(runs);
  vi.useFakeTimers({ toFake: ['Date'] });
});
afterEach(() => vi.useRealTimers());

/** A logger's program in this process, whose server a test makes slow or bad. */
class Program {
  /** The trials that have traces, by entry. */
  readonly has = new Map<string, Set<string>>();
  /** The trials that it was asked to write, in order, and the entries about which it was asked. */
  tried: string[] = [];
  asked: string[] = [];
  /** How long the server takes for a trace, and to tell what it has. */
  seconds = 0;
  secondsToTell = 0;
  /** Returns why a trial cannot be written, or null. */
  fault: (trial: string) => TraceFailure | null = () => null;

  async traced(entry: string): Promise<Set<string>> {
    pass(this.secondsToTell);
    this.asked.push(entry);
    return new Set(this.has.get(entry));
  }

  async trace(entry: string, { id }: { id: string }): Promise<TraceFailure | null> {
    pass(this.seconds);
    this.tried.push(id);
    const failure = this.fault(id);
    if (failure === null) this.has.set(entry, new Set(this.has.get(entry)).add(id));
    return failure;
  }

  /** Returns what it was asked to write since the last call. */
  take(): string[] {
    const taken = this.tried;
    this.tried = [];
    return taken;
  }
}

const OUTAGE: TraceFailure = { reason: 'error 502', isRefused: false };
const REFUSAL: TraceFailure = { reason: 'error 413', isRefused: true };

const pass = (seconds: number) => vi.setSystemTime(Date.now() + 1000 * seconds);

function tracerOf(runId: string, program: Program, traces = 8): TrialTracer {
  const destination: Destination = { logger: 'mlflow', settings: {}, traces, digest: 'd' };
  return new TrialTracer({ db: store.db, runId, destination, program, confirmHeld: async () => {} });
}

/** Calls the tracer until it has no more to write now, as the program that writes a log does. Returns the number of calls. */
async function writeAll(tracer: TrialTracer, runId: string): Promise<number> {
  for (let calls = 1; ; calls += 1) {
    const { hasMore } = await tracer.writeSome(await readRunLog(store.db, runId), signal);
    if (!hasMore) return calls;
    expect(calls).toBeLessThan(20);
  }
}

async function runOf(id: string, steps: number): Promise<LoggedRun> {
  const run = await new LoggedRun(store.db, id).begin();
  for (let step = 0; step < steps; step += 1) await run.trainStep(step);
  return run;
}

test('a server that fails slowly is left alone after three traces, for longer each time, and gets all of them when it answers', async () => {
  await runOf('slow', 3);
  const program = new Program();
  const tracer = tracerOf('slow', program);
  program.seconds = 10;
  program.fault = () => OUTAGE;
  await writeAll(tracer, 'slow');
  expect(program.take()).toHaveLength(3);
  expect(tracer.failure).toBe('it has the metrics, but traces are missing: error 502');
  for (const seconds of [20, 40]) {
    pass(seconds - 1);
    await writeAll(tracer, 'slow');
    expect(program.take()).toEqual([]);
    pass(1);
    await writeAll(tracer, 'slow');
    expect(program.take()).toHaveLength(1);
  }
  program.fault = () => null;
  pass(300);
  await writeAll(tracer, 'slow');
  expect(new Set(program.take()).size).toBe(6);
  expect(tracer.failure).toBeNull();
});

test('metrics have their turn after each slow trace, and after each slow answer of what there is', async () => {
  await runOf('turns', 2);
  const program = new Program();
  program.seconds = 6;
  expect(await writeAll(tracerOf('turns', program), 'turns')).toBe(4);
  expect(program.take()).toHaveLength(4);
  program.has.clear();
  program.secondsToTell = 6;
  expect(await writeAll(tracerOf('turns', program), 'turns')).toBe(6);
  expect(program.take()).toHaveLength(4);
});

test.each([0, 6])(
  'where a server fails for all trials of the first iterations, each after %d s, the others have traces after the second try',
  async (seconds) => {
    const id = `after-${seconds}`;
    await runOf(id, 4);
    const program = new Program();
    const tracer = tracerOf(id, program);
    program.seconds = seconds;
    program.fault = (trial) => (/-[01]\.1\//.test(trial) ? OUTAGE : null);
    await writeAll(tracer, id);
    pass(300);
    await writeAll(tracer, id);
    expect([...program.has.keys()]).toEqual(['2.1', '3.1']);
    expect([...program.has.values()].map(({ size }) => size)).toEqual([2, 2]);
  },
);

test('trials that are refused keep no other one from its trace, also in a program that has one try, and are tried again alone', async () => {
  const run = await runOf('refused', 4);
  const program = new Program();
  const tracer = tracerOf('refused', program);
  const bad = ['0.1/0-0', '0.1/0-1', '1.1/0-0', '1.1/0-1'].map((each) => `refused-${each}`);
  program.fault = (trial) => (bad.includes(trial) ? REFUSAL : null);
  await writeAll(tracer, 'refused');
  const others = ['2.1/0-0', '2.1/0-1', '3.1/0-0', '3.1/0-1'].map((each) => `refused-${each}`);
  expect(program.take()).toEqual([...bad, ...others]);
  await run.trainStep(4);
  await writeAll(tracer, 'refused');
  expect(program.take()).toEqual(['refused-4.1/0-0', 'refused-4.1/0-1']);
  expect(tracer.failure).toMatch(/error 413$/);
  pass(300);
  await writeAll(tracer, 'refused');
  expect(program.take().toSorted()).toEqual(bad);
});

test('what failed of an iteration that a redo has superseded is not missing', async () => {
  const run = await runOf('redone', 2);
  const program = new Program();
  const tracer = tracerOf('redone', program);
  program.fault = (trial) => (trial.startsWith('redone-1.1/') ? REFUSAL : null);
  await writeAll(tracer, 'redone');
  expect(tracer.failure).not.toBeNull();
  await run.redo(1);
  await run.trainStep(1, 3, { take: 2, parent: 1 });
  program.take();
  await writeAll(tracer, 'redone');
  expect(program.take()).toEqual(['redone-1.2/0-0', 'redone-1.2/0-1']);
  expect(tracer.failure).toBeNull();
});

test('a program that starts later writes the missing traces alone, up to the bound', async () => {
  await runOf('later', 1);
  const program = new Program();
  program.has.set('0.1', new Set(['later-0.1/0-0']));
  await writeAll(tracerOf('later', program), 'later');
  expect(program.take()).toEqual(['later-0.1/0-1']);
  program.has.set('0.1', new Set(['later-0.1/0-1']));
  await writeAll(tracerOf('later', program, 1), 'later');
  expect(program.take()).toEqual([]);
});

test('an evaluation whose name begins like another one gets the traces of its own trials', async () => {
  const run = await runOf('named', 1);
  await run.evaluate(1);
  await run.evaluate(1, 1);
  await run.end();
  const program = new Program();
  const tracer = tracerOf('named', program);
  await writeAll(tracer, 'named');
  expect([...(program.has.get('eval@1') ?? [])]).toEqual(['named-eval@1/0-0', 'named-eval@1/0-1']);
  expect([...(program.has.get('eval@1.1') ?? [])]).toEqual(['named-eval@1.1/0-0', 'named-eval@1.1/0-1']);
  expect(tracer.count((await readRunLog(store.db, 'named')).entries)).toBe(6);
});

test('when a run ends, only entries with room for more traces are looked at again, and the logger is asked about none twice', async () => {
  const run = await runOf('ended', 2);
  const late = { id: 'ended-1.1/0-2', groupId: 'ended/1.1/0', trialIndex: 2, agent: 'oneshot', task: 't' };
  await store.db.insert(trials).values({ ...late, runId: 'ended', status: 'created' });
  const program = new Program();
  program.has.set('0.1', new Set(['a', 'b', 'c']));
  const tracer = tracerOf('ended', program, 3);
  await writeAll(tracer, 'ended');
  expect(program.take()).toEqual(['ended-1.1/0-0', 'ended-1.1/0-1']);
  await store.db.update(trials).set({ status: 'completed', outcome: 'scored' }).where(eq(trials.id, late.id));
  await writeAll(tracer, 'ended');
  expect(program.take()).toEqual([]);
  await run.end();
  const queries = vi.spyOn(store.db, 'select');
  const log = await readRunLog(store.db, 'ended');
  queries.mockClear();
  await tracer.writeSome(log, signal);
  // The trials of one entry, the trial and its calls.
  expect(queries.mock.calls.length).toBe(3);
  queries.mockRestore();
  expect(program.take()).toEqual([late.id]);
  expect(program.asked).toEqual(['0.1', '1.1']);
});
