import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { eq } from 'drizzle-orm';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { createActivities } from '../../activities/index.ts';
import { readRun } from '../../activities/run/read-run.ts';
import { replicas, runs, trials } from '../../store/schema.ts';
import { readCalls } from '../../store/queries/read-calls.ts';
import { OpenAiServer } from '../../tests/support/fakes/openai-server.ts';
import { depsOver } from '../../tests/support/harness/deps-over.ts';
import { SECRET, useGateway } from '../../tests/support/harness/gateways.ts';
import { taskWith, temporaryHome } from '../../tests/support/harness/sandbox-fixtures.ts';
import { useTemporal } from '../../tests/support/harness/use-temporal.ts';
import { withWorkers } from '../../tests/support/harness/workflow-worker.ts';
import { readRunLog } from '../log/logger-entries.ts';
import { printEvaluation } from '../show/print-evaluation.ts';
import { NO_RELAY } from './check-engines.ts';
import { openEvaluation, type EvaluatedFile } from './evaluate-file.ts';
import { startEvaluation, watchEvaluation } from './evaluate-policy.ts';
import { resumeRun } from './resume-run.ts';

const environment = useTemporal();
const gateway = useGateway();
let server: OpenAiServer;
let place: Awaited<ReturnType<typeof temporaryHome>>;
beforeEach(async () => {
  [server, place] = [await new OpenAiServer().start(), await temporaryHome()];
});
afterEach(async () => {
  await server.stop();
  await place[Symbol.asyncDispose]();
});

const connected = () => ({ client: environment.client, db: gateway.db });

/** Writes a run file whose tasks give reward 1 for the reply of the tests' server. */
async function runFile(changes: object = {}): Promise<string> {
  const { home } = place;
  const tests = 'grep -q Hello $TRANSCRIPT_FILE && reward=1 || reward=0; echo $reward > $LOGS_DIR/verifier/reward.txt';
  const tasks = [(await taskWith(home, tests)).folder];
  const file = join(home, 'run.yaml');
  const settings = { model: 'm', tasks, iterations: 3, evaluation: { tasks, samples: 2 }, ...changes };
  await writeFile(file, JSON.stringify(settings));
  return file;
}

type Asked = Pick<EvaluatedFile, 'file' | 'engines'>;

/** Opens the evaluation of a run file, and returns what a person is told. */
async function open(runId: string, asked: Asked, signal: AbortSignal): Promise<string[]> {
  const told: string[] = [];
  const report = (line: string) => void told.push(line);
  const { home } = place;
  await openEvaluation(connected(), { ...asked, runId, hasTasks: false }, { home, relay: NO_RELAY, report }, signal);
  return told;
}

/** Evaluates a run with the real workflows and activities. */
async function evaluate(runId: string, signal: AbortSignal): Promise<string> {
  const over = depsOver({ db: gateway.db, temporal: environment.client, home: place.home });
  const deps = { ...over, gatewayUrls: [gateway.gateway.url], secret: SECRET };
  const { general, sandbox, host } = createActivities(deps);
  return withWorkers(environment, { trialgate: general, sandboxes: sandbox, host }, async () => {
    await startEvaluation(connected(), { runId });
    return printEvaluation(gateway.db, await watchEvaluation(connected(), runId, signal), false);
  });
}

test('the held-out tasks of a run file are evaluated with what a server of OpenAI’s completions serves, as often as wanted, and cannot be trained on', async ({
  signal,
}) => {
  const engine = `openai+${server.url}`;
  const runId = 'served';
  await open(runId, { file: await runFile(), engines: [engine] }, signal);
  for (const nth of [1, 2])
    expect(await evaluate(runId, signal)).toMatch(
      new RegExp(`on demand ${nth}: reward mean 1.*2 scored, pass@1 100 ?%, pass@2 100 ?%`),
    );
  const evaluated = await gateway.db.select().from(trials).where(eq(trials.runId, runId));
  expect(evaluated).toHaveLength(4);
  for (const { id, attempt } of evaluated)
    expect(await readCalls(gateway.db, { trialId: id, attempt })).toMatchObject([
      { engine, status: 'completed', untrainable: 'no_token_ids' },
    ]);
  expect(await gateway.db.select().from(replicas).where(eq(replicas.url, engine))).toEqual([]);
  await expect(resumeRun(connected(), runId)).rejects.toThrow(/is no engine for a run: .*no token ids/);
});

test('without a server that is there and takes no weights, or without held-out tasks, no run is made', async ({
  signal,
}) => {
  const file = await runFile();
  const refused = async (asked: Asked, why: string | RegExp) =>
    expect(open('refused', asked, signal)).rejects.toThrow(why);
  await refused({ file }, `${gateway.engine.url} is a vLLM or an SGLang, to which a run publishes`);
  await refused({ file, engines: [`openai+${server.url}/other`] }, 'answered 404 instead of its list of models');
  await refused({ file, engines: ['openai+https://user:KEY@a/v1'] }, /^(?!.*KEY).* is no engine/);
  const engines = [`openai+${server.url}`];
  await refused({ file: await runFile({ evaluation: {} }), engines }, 'names no held-out tasks');
  expect(await gateway.db.select().from(runs).where(eq(runs.id, 'refused'))).toEqual([]);
});

test('a run file is evaluated although its training tasks are gone, and its server is reached by the gateways alone', async ({
  signal,
}) => {
  const file = await runFile({
    tasks: [join(place.home, 'gone'), { rows: 'gone.jsonl', prompt: '{q}', reward: 'exact_match' }],
  });
  const engines = ['openai+relay:w'];
  expect(await open('partly', { file, engines }, signal)).toEqual([
    expect.stringMatching(/^WARNING: the server openai\+relay:w cannot be reached from here/),
  ]);
  expect((await readRun(gateway.db, 'partly')).engines).toEqual(engines);
  await expect(open('partly', { file, engines }, signal)).rejects.toThrow(
    /run partly exists: .*npx trialgate evaluate partly/,
  );
});

test('no logger of a run file follows an evaluation, which has ended before it began; the person is told how to export it', async ({
  signal,
}) => {
  const file = await runFile({ loggers: ['csv'] });
  const runId = 'logged';
  expect(await open(runId, { file, engines: [`openai+${server.url}`] }, signal)).toEqual([
    expect.stringContaining(`"npx trialgate export-metrics ${runId} --to LOGGER"`),
  ]);
  expect((await readRun(gateway.db, runId)).loggers).toEqual([]);
  await evaluate(runId, signal);
  const { entries } = await readRunLog(gateway.db, runId, { withIncomplete: true });
  expect(entries).toMatchObject([{ id: ['val', 0, 1], evaluation: 'eval@0.1' }]);
});
