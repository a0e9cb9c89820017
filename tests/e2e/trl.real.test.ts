import { execFile } from 'node:child_process';
import { chmod, mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect, test, type TestContext } from 'vitest';
import { z } from 'zod';
import { INSTALLS } from '../../cli/folders.ts';
import { REPOSITORY } from '../../core/repository.ts';
import { withTemporaryStack } from '../support/harness/temporary-deployment.ts';
import { shallowModel } from '../support/harness/shallow-model.ts';
import { chanceTasks } from '../support/scenarios/chance-tasks.ts';
import { TRL_ENVIRONMENT, trlPython } from '../support/harness/trl-environment.ts';

const trained = z.object({
  name: z.string(),
  version: z.int(),
  steps: z.int(),
  weight_version: z.string(),
  from_trainer: z.number(),
  from_base: z.number(),
  samples: z.array(
    z.object({
      trial: z.string().optional(),
      token_ids: z.array(z.int()),
      mask: z.array(z.int()),
      logprobs: z.array(z.number()),
      versions: z.array(z.int().nullable()),
      reward: z.number(),
    }),
  ),
  log: z.array(
    z.looseObject({ loss: z.coerce.number(), grad_norm: z.coerce.number(), ratio: z.coerce.number().optional() }),
  ),
});
const parquet = z.object({
  written: z.string(),
  rows: z.array(z.object({ trial: z.string(), input_ids: z.array(z.int()), labels: z.array(z.int()) })),
  trained: z.int(),
  steps: z.int(),
  roles: z.array(z.string()),
});
const record = z.object({
  rewards: z.record(z.string(), z.number()).nullable(),
  turns: z.array(
    z.object({
      prompt_token_ids: z.array(z.int()),
      completion_token_ids: z.array(z.int()),
      completion_logprobs: z.array(z.number()),
      weight_version: z.string(),
    }),
  ),
});
const list = z.object({ sessions: z.array(z.object({ session_id: z.string() })) });
const aCase = z.looseObject({ case: z.string(), error: z.string().optional() });

type Conversation = {
  id: string;
  ids: number[];
  mask: number[];
  logprobs: number[];
  weights: string[];
  /** What the verifier gave, if one judged it. */
  reward: number | undefined;
};
type Done = {
  /** What each case of `train.py` printed, or its error. */
  cases: Map<string, z.output<typeof aCase>>;
  conversations: Conversation[];
  /** What the program wrote on stderr. */
  log: string;
};

/** The limit of this tier is 900 s; a program that hangs must end before it. */
const MOST_MS = 840_000;

let home: string;
/** TRL's Python, or why there is none. */
let python: { path: string } | string;
let all: Done | undefined;

beforeAll(async () => {
  home = await mkdtemp(join(tmpdir(), 'trialgate-trl-'));
  await chmod(home, 0o755);
  python = await trlPython(AbortSignal.timeout(MOST_MS)).then(
    (path) => ({ path }),
    (error: unknown) => String(error),
  );
});
beforeAll(async () => {
  if (typeof python !== 'string') all = await trainAll(python.path, AbortSignal.timeout(MOST_MS));
});
afterAll(() => rm(home, { recursive: true, force: true }));

/** Runs all trainers, one after another, on one deployment: PostgreSQL, a gateway, and vLLM that receives weights over TCP. */
async function trainAll(trl: string, signal: AbortSignal): Promise<Done> {
  const model = await shallowModel(join(home, 'model'), 2);
  const tasks = await chanceTasks(join(home, 'tasks'));
  const settings = join(home, 'try.json');
  await writeFile(settings, JSON.stringify({ model, tasks: [tasks], iterations: 1, max_response_length: 24 }));
  const temporary = join(home, 'tmp');
  await mkdir(temporary);
  return withTemporaryStack(
    async ({ plan }) => {
      const url = plan.gatewayUrls[0] ?? '';
      const env = {
        PATH: process.env['PATH'],
        HOME: home,
        TMPDIR: temporary,
        ...TRL_ENVIRONMENT,
        TRIALGATE_HOME: plan.config.home,
        TRIALGATE_GATEWAY_URL: url,
        TRIALGATE_DATABASE_URL: plan.databaseUrl,
        TRIALGATE_UNSANDBOXED: 'true',
        TRIALGATE_URL: url,
        TRIALGATE_ADMIN_KEY: plan.adminKey,
      };
      const command = JSON.stringify([INSTALLS.node, INSTALLS.main]);
      const args = ['--model', model, '--tasks', tasks, '--try-command', command, '--try-run', settings];
      const { stdout, stderr } = await promisify(execFile)(
        trl,
        [join(REPOSITORY, 'tests/support/scenarios/trl/train.py'), ...args],
        { env, signal, maxBuffer: 2 ** 28 },
      );
      const cases = stdout
        .split('\n')
        .filter((line) => line.startsWith('{"case"'))
        .map((line) => aCase.parse(JSON.parse(line)));
      const byName = new Map(cases.map((each) => [each.case, each]));
      return { cases: byName, conversations: await readConversations(url, plan.adminKey), log: stderr };
    },
    signal,
    ['postgres', 'vllm', 'gateway'],
    { TRIALGATE_MODEL: model, TRIALGATE_ENGINE_ARGS: '--weight-transfer-config {"backend":"gloo"}' },
  );
}

/** Returns the conversation of each session. Each turn goes on from the ids of the turns before it. */
async function readConversations(url: string, adminKey: string): Promise<Conversation[]> {
  const get = async (path: string) =>
    (await fetch(`${url}${path}`, { headers: { authorization: `Bearer ${adminKey}` } })).json();
  const { sessions } = list.parse(await get('/sessions?limit=500'));
  return Promise.all(
    sessions.map(async ({ session_id: id }) => {
      const { turns: calls, rewards } = record.parse(await get(`/sessions/${id}`));
      const last = calls.at(-1);
      const ids = last ? [...last.prompt_token_ids, ...last.completion_token_ids] : [];
      const mask = ids.map(() => 0);
      const logprobs = ids.map(() => 0);
      for (const turn of calls)
        turn.completion_token_ids.forEach((token, i) => {
          const at = turn.prompt_token_ids.length + i;
          expect(ids[at]).toBe(token);
          mask[at] = 1;
          logprobs[at] = turn.completion_logprobs[i] ?? NaN;
        });
      return {
        id,
        ids,
        mask,
        logprobs,
        reward: rewards?.['reward'],
        weights: calls.map((turn) => turn.weight_version),
      };
    }),
  );
}

/** Returns what a case did, and what the gateway recorded of all. */
function doneBy<T extends z.ZodType>(name: string, form: T, skip: TestContext['skip']) {
  if (typeof python === 'string') return skip(`TRL cannot be installed from the package index: ${python}`);
  const found = all?.cases.get(name);
  if (!all || !found || found.error !== undefined) throw new Error(found?.error ?? `${name} did not end: ${all?.log}`);
  // An engine that could not receive its weights would have loaded them from disk.
  expect(all.log).not.toContain('did not receive its weights');
  return { done: form.parse(found), conversations: all.conversations };
}

const trainedTokens = ({ mask }: { mask: number[] }): number => mask.filter(Boolean).length;

function expectTrainedWeightsInEngine({ steps, log, from_trainer, from_base }: z.output<typeof trained>): void {
  expect(log).toHaveLength(steps);
  // After the first step the model may say one thing only; equal rewards have no gradient.
  expect(log[0]?.grad_norm).toBeGreaterThan(0);
  // In bfloat16, logits from 16 to 32 are rounded to eighths: the engine is about 0.07 from the weights that it has.
  expect(from_trainer).toBeLessThan(0.2);
  // The length of a step depends on the samples. An engine without the step would be nearer to the base model.
  expect(from_base).toBeGreaterThan(2 * from_trainer);
}

test.for([
  ['', 'grpo'],
  [' with LoRA', 'grpo lora'],
])(
  'GRPOTrainer trains two steps on trials of the gateway%s: it gets the recorded ids, each step’s trials are sampled with its weights, and the engine ends with them',
  ([, name = ''], { skip }) => {
    const { done, conversations } = doneBy(name, trained, skip);
    expect([done.steps, done.version, done.weight_version]).toEqual([2, 3, `${done.name}@3`]);
    const sessions = new Map(conversations.map((each) => [each.id, each]));
    expect(done.samples).toHaveLength(8);
    done.samples.forEach((sample, i) => {
      const session = sessions.get(sample.trial ?? '');
      expect([sample.token_ids, sample.mask]).toEqual([session?.ids, session?.mask]);
      expect(sample.logprobs).toEqual(session?.logprobs);
      expect(trainedTokens(sample)).toBeGreaterThan(2);
      const version = i < 4 ? 1 : 2;
      expect(new Set(sample.versions.filter((each) => each !== null))).toEqual(new Set([version]));
      expect(new Set(session?.weights)).toEqual(new Set([`${done.name}@${version}`]));
    });
    expectTrainedWeightsInEngine(done);
  },
);

test.for([
  ['', 'async'],
  [' with LoRA', 'async lora'],
])(
  'AsyncGRPOTrainer trains two steps on samples of the worker%s: log-probabilities agree, and the weights reach the engine',
  ([, name = ''], { skip }) => {
    const { done, conversations } = doneBy(name, trained, skip);
    expect([done.steps, done.version, done.weight_version]).toEqual([2, 3, `${done.name}@3`]);
    const own = conversations.filter(({ id }) => id.startsWith(`${done.name}-`));
    const byIds = new Map(own.map((each) => [JSON.stringify(each.ids), each]));
    expect(done.samples.length).toBeGreaterThanOrEqual(8);
    for (const sample of done.samples) {
      const session = byIds.get(JSON.stringify(sample.token_ids));
      expect(sample.mask).toEqual(session?.mask);
      sample.logprobs.forEach((value, i) => expect(value).toBeCloseTo(session?.logprobs[i] ?? NaN, 4));
      expect(sample.versions.every((version) => version !== null && version >= 1 && version <= 3)).toBe(true);
    }
    // The trainer's log-probabilities of the first step are those that the engine gave, but for bfloat16.
    expect(done.log[0]?.ratio).toBeGreaterThan(0.9);
    expect(done.log[0]?.ratio).toBeLessThan(1.1);
    expectTrainedWeightsInEngine(done);
  },
);

test('GRPOTrainer trains on tasks that Trialgate’s own agent does in a sandbox, with the verifier’s rewards', ({
  skip,
}) => {
  const { done, conversations } = doneBy('sandboxed', trained, skip);
  expect([done.steps, done.weight_version]).toEqual([1, `${done.name}@2`]);
  const sessions = new Map(conversations.map((each) => [each.id, each]));
  expect(done.samples).toHaveLength(4);
  for (const { trial, token_ids, mask, logprobs, reward } of done.samples) {
    const session = sessions.get(trial ?? '');
    expect(trial).toMatch(/^try-/);
    expect([token_ids, mask, logprobs]).toEqual([session?.ids, session?.mask, session?.logprobs]);
    expect(session?.weights).toEqual([`${done.name}@1`]);
    expect(reward).toBe(session?.reward);
  }
  expectTrainedWeightsInEngine(done);
});

test('TRL’s SFTTrainer trains on the ids and labels of a Parquet file of samples', ({ skip }) => {
  const { done, conversations } = doneBy('parquet', parquet, skip);
  const sandboxed = conversations.filter(({ id }) => id.startsWith('try-'));
  expect(done.written).toContain('4 samples of 4 sessions');
  expect(done.rows).toHaveLength(4);
  for (const { trial, input_ids, labels } of done.rows) {
    const session = sandboxed.find(({ id }) => id === trial);
    expect(input_ids).toEqual(session?.ids);
    expect(labels).toEqual(session?.ids.map((token, i) => (session.mask[i] ? token : -100)));
  }
  expect(done).toMatchObject({
    trained: sandboxed.reduce((sum, session) => sum + trainedTokens(session), 0),
    steps: 1,
    roles: expect.arrayContaining(['user', 'assistant']),
  });
});
