import { execFile } from 'node:child_process';
import { chmod, cp, mkdtemp, readdir, readFile, rm, stat, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { parse, stringify } from 'yaml';
import { z } from 'zod';
import { UNTRAINED } from '../../activities/reward/grade-row.ts';
import { Graders } from '../../activities/reward/graders.ts';
import { rewardFunction } from '../../core/run-config/reward.ts';
import { REPOSITORY } from '../../core/repository.ts';
import { openDatabase } from '../../store/database.ts';
import { connectionsOf } from '../../cli/config/connections.ts';
import { EXIT } from '../../cli/exit.ts';
import { INSTALLS } from '../../cli/folders.ts';
import { deviceOf } from '../../cli/supervisor/device.ts';
import type { RunRecord } from '../../cli/show/run-record.ts';
import { auditRun } from '../support/oracles/audit-run.ts';
import { chanceTasks } from '../support/scenarios/chance-tasks.ts';
import { TestDeployment } from '../support/harness/deployment.ts';
import { withVllm } from '../support/harness/own-vllm.ts';
import { shallowModel } from '../support/harness/shallow-model.ts';

let folder = '';
let deployment: TestDeployment;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'trialgate-whole-'));
  await chmod(folder, 0o755);
  deployment = await TestDeployment.create({
    TRIALGATE_ENGINE_ARGS:
      '--enable-auto-tool-choice --tool-call-parser hermes --enable-lora --max-lora-rank 8 --max-loras 3',
  });
  await deployment.up();
});
afterAll(async () => {
  await deployment.remove();
  await rm(folder, { recursive: true, force: true });
});

test('the small model, with all its layers, is sampled, trained and published, and its engine confirms the new weights', async () => {
  const config = {
    model: INSTALLS.smallModel,
    tasks: [await chanceTasks(join(folder, 'tasks'))],
    agents: ['oneshot'],
    iterations: 1,
    groups_per_iteration: 1,
    group_size: 3,
    max_response_length: 48,
    evaluation: { before: false, after: false },
  };
  const file = join(folder, 'whole.json');
  await writeFile(file, JSON.stringify(config));
  await deployment.trialgate('train', file, '--run', 'whole');
  const record: RunRecord = JSON.parse(await deployment.trialgate('show', 'whole', '--json'));
  expect(record).toMatchObject({
    status: 'completed',
    iterations: [
      {
        status: 'done',
        policy_version: 0,
        trained_version: 1,
        skipped: null,
        batch: { trials: 3 },
        replicas: [{ weight_version: 'whole@1' }],
      },
    ],
  });
  expect(record.iterations[0]?.metrics?.['actor/grad_norm']).toBeGreaterThan(0);
  const db = openDatabase(connectionsOf(deployment.config).databaseUrl);
  expect(await auditRun(db, 'whole', 1).finally(() => db.$client.end())).toEqual([]);
});

test('a run trains a LoRA adapter on the engine that had whole models, which serves its versions side by side, and a larger rank than the engine’s is refused', async () => {
  const config = {
    model: INSTALLS.smallModel,
    tasks: [await chanceTasks(join(folder, 'lora-tasks'))],
    agents: ['oneshot'],
    iterations: 2,
    groups_per_iteration: 1,
    group_size: 3,
    max_response_length: 48,
    max_staleness: 1,
    lora_rank: 8,
    evaluation: { before: false, after: false },
  };
  const file = join(folder, 'lora.json');
  await writeFile(file, JSON.stringify({ ...config, lora_rank: 16 }));
  await expect(deployment.trialgate('train', file, '--run', 'large')).rejects.toThrow(
    /takes adapters of rank 8 at most, not 16.*--max-lora-rank 16/s,
  );
  await writeFile(file, JSON.stringify(config));
  await deployment.trialgate('train', file, '--run', 'adapted');
  const record: RunRecord = JSON.parse(await deployment.trialgate('show', 'adapted', '--json'));
  expect(record).toMatchObject({
    status: 'completed',
    iterations: [1, 2].map((version) => ({
      status: 'done',
      trained_version: version,
      skipped: null,
      replicas: [{ weight_version: `adapted@${version}` }],
    })),
  });
  const [first] = record.iterations;
  expect(first?.metrics?.['actor/lr']).toBe(3e-4);
  expect(first?.metrics?.['actor/grad_norm']).toBeGreaterThan(0);
  const db = openDatabase(connectionsOf(deployment.config).databaseUrl);
  expect(await auditRun(db, 'adapted', 2).finally(() => db.$client.end())).toEqual([]);
});

test('a fork goes on with its parent’s adapter, and one with another rank is refused', async () => {
  await deployment.trialgate('fork', 'adapted@2', '--run', 'forked', '--iterations', '1');
  const forked: RunRecord = JSON.parse(await deployment.trialgate('show', 'forked', '--json'));
  expect(forked).toMatchObject({ status: 'completed', iterations: [{ replicas: [{ weight_version: 'forked@1' }] }] });
  await expect(deployment.trialgate('fork', 'adapted@2', '--run', 'other', 'lora_rank=4')).rejects.toThrow(
    /a fork goes on with its parent's adapter/,
  );
});

test('`export` writes an adapter merged into its model, and with `--adapter` alone', async () => {
  const [merged, adapter] = [join(folder, 'merged'), join(folder, 'adapter')];
  await deployment.trialgate('export', 'adapted', merged);
  expect((await stat(join(merged, 'model.safetensors'))).size).toBeGreaterThan(2e8);
  await deployment.trialgate('export', 'adapted', adapter, '--adapter');
  expect((await readdir(adapter)).toSorted()).toEqual([
    'README.md',
    'adapter_config.json',
    'adapter_model.safetensors',
  ]);
});

const EXAMPLES = join(REPOSITORY, 'examples');
/** The rows of examples/, two groups of two trials: as a user would try them, and in a minute. */
async function smallRun(example: string, changes: object): Promise<string> {
  const given: unknown = parse(await readFile(join(EXAMPLES, example, 'run.yaml'), 'utf8'));
  await cp(join(EXAMPLES, example), join(folder, example), { recursive: true });
  const small = { iterations: 1, groups_per_iteration: 2, group_size: 2, ...changes };
  const file = join(folder, example, 'run.yaml');
  await writeFile(file, stringify({ ...z.record(z.string(), z.unknown()).parse(given), ...small }));
  return file;
}

test('examples/gsm8k: rows are trained with a bundled reward and one in Python, the policy is exported, and the run is deleted', async () => {
  const file = await smallRun('gsm8k', { evaluation: {}, max_response_length: 32 });
  await deployment.trialgate('train', file, '--run', 'sums');
  const record: RunRecord = JSON.parse(await deployment.trialgate('show', 'sums', '--json'));
  expect(record).toMatchObject({ status: 'completed', iterations: [{ trials: { scored: 4 } }] });
  const listed = z
    .array(z.object({ trial: z.string(), task: z.string() }))
    .parse(JSON.parse(await deployment.trialgate('trials', 'sums', '--json')));
  for (const { trial, task } of listed) {
    expect(task).toMatch(/train\.jsonl#\d+$/);
    const shown: unknown = JSON.parse(await deployment.trialgate('show', trial, '--json'));
    const { rewards } = z.object({ rewards: z.record(z.string(), z.number()) }).parse(shown);
    expect(Object.keys(rewards).toSorted()).toEqual(['correct', 'format']);
  }
  expect(await deployment.trialgate('show', listed[0]?.trial ?? '')).toContain('Think step by step');
  const model = join(folder, 'exported');
  await deployment.trialgate('export', 'sums', model);
  expect(await readFile(join(model, 'README.md'), 'utf8')).toContain('`sums@1`');
  expect((await stat(join(model, 'model.safetensors'))).size).toBeGreaterThan(1e8);
  expect(await deployment.trialgate('rm', 'sums')).toContain('run sums is deleted, with 2 checkpoint(s)');
  expect(await deployment.trialgate('gc', '--dry-run')).toContain('checkpoints');
});

test('examples/langgraph: a LangGraph agent with its own packages makes trainable calls in which the model is shown its tool, and a Python function gives its reward', async () => {
  const file = await smallRun('langgraph', {});
  const tried = await deployment.trialgate(
    'try',
    `${join(folder, 'langgraph/sums.jsonl')}#0`,
    '--agent',
    join(folder, 'langgraph/agent/agent.yaml'),
    '--run',
    file,
    '--json',
  );
  const trial = z
    .object({
      outcome: z.string(),
      rewards: z.record(z.string(), z.number()),
      samples: z.array(z.unknown()),
      calls: z.array(z.object({ sampling: z.record(z.string(), z.unknown()), tools: z.array(z.unknown()) })),
    })
    .parse(JSON.parse(tried));
  expect(['scored', 'truncated']).toContain(trial.outcome);
  expect(trial.rewards['reward']).toBeGreaterThanOrEqual(0);
  expect(trial.samples.length).toBeGreaterThan(0);
  expect(trial.calls[0]?.tools).toHaveLength(1);
  for (const { sampling } of trial.calls) expect(sampling).not.toHaveProperty('tools_not_shown');
});

test('examples/external: a program outside claims the groups of a run, asks the model by the OpenAI SDK, and its rewards are trained on', async () => {
  const file = await smallRun('external', {});
  await deployment.trialgate('train', file, '--run', 'outside', '--detach');
  const access = (await deployment.trialgate('key', 'outside')).trim().split('\n');
  const { stdout } = await promisify(execFile)(
    join(REPOSITORY, '.trialgate/venv/bin/python'),
    [join(folder, 'external/loop.py')],
    {
      env: {
        ...Object.fromEntries(access.map((line) => line.split('=') as [string, string])),
        PYTHONPATH: join(REPOSITORY, 'clients/python'),
        PATH: process.env['PATH'],
      },
    },
  );
  expect(stdout.trim()).toBe('run outside is completed');
  const record: RunRecord = JSON.parse(await deployment.trialgate('show', 'outside', '--json'));
  expect(record).toMatchObject({ status: 'completed', iterations: [{ trials: { scored: 4 }, batch: { trials: 4 } }] });
  expect(record.iterations[0]?.metrics?.['actor/grad_norm']).toBeGreaterThan(0);
});

test.each(['langgraph', 'openai-agents'])(
  'the bundled agent %s, with its packages, makes trainable calls of the small model',
  async (agent) => {
    const task = join(await chanceTasks(join(folder, 'tasks')), 'add');
    // The small model may lead the agent to fail. The trial is then printed all the same, and the exit code is 4.
    const tried = await deployment
      .trialgate('try', task, '--agent', agent, '--json')
      .catch((error: { code?: number; stdout?: string }) => {
        if (error.code !== EXIT.failed || !error.stdout) throw error;
        return error.stdout;
      });
    const trial = z.object({ outcome: z.string(), samples: z.array(z.unknown()) }).parse(JSON.parse(tried));
    expect(['scored', 'truncated', 'timed_out', 'agent_error']).toContain(trial.outcome);
    expect(trial.samples.length).toBeGreaterThan(0);
  },
);

test.each([
  ['math_equal', 'So $x = \\boxed{\\frac{2}{4}}$.', { answer: '\\frac{1}{2}' }, 1],
  ['math_equal', 'It is 3.', { answer: '4' }, 0],
  ['json_schema', '```json\n{"name": "Ada"}\n```', { schema: { type: 'object', required: ['name'] } }, 1],
  ['json_schema', '{"age": 3}', { schema: { type: 'object', required: ['name'] } }, 0],
])('the bundled reward %s, with its packages, gives the reply %j its reward', async (name, content, row, expected) => {
  const graders = new Graders(deployment.config.home);
  const request = {
    row,
    prompt: 'What is it?',
    transcript: [{ role: 'assistant', content }],
    completion_ids: [],
    training: UNTRAINED,
    result: null,
    files: null,
  };
  const graded = graders.grade(rewardFunction.parse({ function: name }), request, new AbortController().signal);
  expect((await graded.finally(() => graders.close())).value).toBe(expected);
});
test('examples/own-model: a folder of the engine’s shape is trained, and one of another shape is refused before the run starts', async () => {
  const file = await smallRun('own-model', { model: 'mine' });
  await symlink(INSTALLS.smallModel, join(folder, 'own-model/mine'));
  await deployment.trialgate('train', file, '--run', 'own-model');
  const record: RunRecord = JSON.parse(await deployment.trialgate('show', 'own-model', '--json'));
  expect(record).toMatchObject({
    status: 'completed',
    iterations: [{ trials: { scored: 4 }, replicas: [{ weight_version: 'own-model@1' }] }],
  });
  const other = await shallowModel(join(folder, 'shallow'), 2);
  await expect(
    deployment.trialgate('train', await smallRun('own-model', { model: other }), '--run', 'other-shape'),
  ).rejects.toThrow(
    /runs SmolLM2-135M-Instruct, the run file names shallow: name that one, or switch the deployment's engine/,
  );
});

// A second engine needs memory of its own, which one GPU does not have beside the deployment's.
test.skipIf(deviceOf('auto') !== 'cpu')(
  'examples/own-vllm: a vLLM that the run file names serves the run, and confirms the new weights',
  async ({ signal }) => {
    const args = ['--worker-extension-cls', 'trialgate_gpu.vllm_extension.TrialgateWorker', '--max-model-len', '2048'];
    const engine = await withVllm(
      async (url) => {
        await deployment.trialgate('train', await smallRun('own-vllm', { engines: [url] }), '--run', 'own-vllm');
        return url;
      },
      signal,
      { args },
    );
    const record: RunRecord = JSON.parse(await deployment.trialgate('show', 'own-vllm', '--json'));
    expect(record).toMatchObject({
      status: 'completed',
      iterations: [{ trials: { scored: 4 }, replicas: [{ replica: engine, weight_version: 'own-vllm@1' }] }],
    });
  },
);

test('`engine use` switches the deployment’s vLLM to another model, which a run then trains', async () => {
  const model = await shallowModel(join(folder, 'other'), 2);
  expect(await deployment.trialgate('engine', 'use', model)).toContain(`the engine runs ${model}`);
  expect(await deployment.trialgate('status')).toContain(model);
  const tasks = [await chanceTasks(join(folder, 'tasks'))];
  const config = { model, tasks, agents: ['oneshot'], iterations: 1, groups_per_iteration: 1, group_size: 3 };
  const file = join(folder, 'switched.json');
  await writeFile(file, JSON.stringify({ ...config, max_response_length: 32 }));
  await deployment.trialgate('train', file, '--run', 'switched');
  const record: RunRecord = JSON.parse(await deployment.trialgate('show', 'switched', '--json'));
  expect(record).toMatchObject({ status: 'completed', iterations: [{ replicas: [{ weight_version: 'switched@1' }] }] });
});
