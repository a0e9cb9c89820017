import { createServer } from 'node:http';
import { once } from 'node:events';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest';
import { checkEngines } from './check-engines.ts';

let folder = '';
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'trialgate-models-'));
  for (const [name, hidden_size] of [
    ['small', 576],
    ['copy', 576],
    ['large', 1024],
  ] as const) {
    await mkdir(join(folder, name));
    await writeFile(join(folder, name, 'config.json'), JSON.stringify({ architectures: ['Llama'], hidden_size }));
  }
});
afterAll(() => rm(folder, { recursive: true }));

async function engineWith(reply: object | null, info: object | null = null): Promise<string> {
  const server = createServer(({ url }, response) => {
    const answer = url?.startsWith('/server_info') ? info : reply;
    if (answer === null) response.writeHead(503).end('loading');
    else response.end(JSON.stringify(answer));
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  onTestFinished(() => void server.close());
  const address = server.address();
  return `http://127.0.0.1:${address !== null && typeof address === 'object' ? address.port : 0}`;
}

const vllm = (root: string, max_model_len = 1024) => engineWith({ data: [{ id: 'policy', root, max_model_len }] });
const NO_RELAY = { gatewayUrls: [], secret: '' };
const check = (engine: string, changes: object = {}) =>
  checkEngines(
    [engine],
    {
      model: join(folder, 'small'),
      max_prompt_length: 512,
      max_response_length: 128,
      engines: [],
      lora_rank: 0,
      max_staleness: 0,
      ...changes,
    },
    NO_RELAY,
  );

test('an engine with the run’s model, or another folder of its shape, passes; so does a folder that is not on this machine', async () => {
  for (const root of [join(folder, 'small'), join(folder, 'copy'), '/elsewhere/model']) await check(await vllm(root));
  await check(await vllm('org/model'), { model: 'org/model' });
});

test.each([
  [
    'runs a model of another shape',
    () => vllm(join(folder, 'large')),
    {},
    /runs large, the run file names small: .*trialgate engine use .*small/,
  ],
  [
    'runs another model of the hub',
    () => vllm('org/other'),
    { model: 'org/model' },
    /runs other, the run file names model/,
  ],
  [
    'takes shorter calls',
    () => vllm(join(folder, 'small'), 600),
    {},
    /are 640 tokens together, and the engine .* takes 600: .*--max-model-len 640/,
  ],
  ['is not ready', () => engineWith(null), {}, /answered 503 at \/v1\/models: loading/],
  ['is none', () => engineWith({ hello: 1 }), {}, /does not list its models/],
  [
    'nobody listens on',
    async () => 'http://127.0.0.1:9',
    {},
    /http:\/\/127\.0\.0\.1:9 cannot be reached: .*ECONNREFUSED/,
  ],
  [
    'is of a kind that cannot be trained',
    async () => 'openai+http://127.0.0.1:9',
    {},
    /^openai\+http.* is no engine for a run: .*no token ids.*name the URL of a vLLM/,
  ],
  ['has no socket', async () => 'unix:/nowhere.sock', {}, /unix:\/nowhere\.sock cannot be reached: .*ENOENT/],
])('an engine that %s refuses the run before it starts', async (_, engine, changes, message) => {
  await expect(check(await engine(), changes)).rejects.toThrow(message);
});

const MODELS = { data: [{ id: 'policy', root: '/elsewhere/model', max_model_len: 1024 }] };
const withLora = (max_lora_rank: number, max_loras: number) => ({
  vllm_config: { lora_config: { max_lora_rank, max_loras } },
});
const sglang = (enable_lora: boolean, max_loras_per_batch = 8) => ({
  enable_lora,
  max_lora_rank: null,
  max_loras_per_batch,
});

test.each([
  ['a vLLM that can', withLora(16, 3)],
  ['an SGLang that can', sglang(true)],
  ['an engine that does not say', null],
])('a run that trains a LoRA adapter may start on %s', async (_, info) => {
  await check(await engineWith(MODELS, info), { lora_rank: 16, max_staleness: 1 });
});

test('a run whose rank vLLM does not take as its largest is told the next one that it takes', async () => {
  const run = { lora_rank: 12, max_staleness: 1 };
  await expect(check(await engineWith(MODELS, withLora(8, 3)), run)).rejects.toThrow('--max-lora-rank 16');
});

test.each([
  [
    'was started without LoRA',
    { vllm_config: { lora_config: null } },
    /npx trialgate up --engine-args '--enable-lora --max-lora-rank 16 --max-loras 3'/,
  ],
  ['was started without LoRA', sglang(false), /and the run trains a LoRA adapter/],
  ['takes adapters of rank 8 at most, not 16', withLora(8, 3), /--max-lora-rank 16/],
  ['computes with 2 adapters at once, and `max_staleness` needs 3', withLora(16, 2), /--max-loras 3/],
  ['computes with 2 adapters at once, and `max_staleness` needs 3', sglang(true, 2), /LoRA adapter/],
])('an engine that %s refuses a run that trains a LoRA adapter, and says how to start it', async (lacks, info, how) => {
  const run = { lora_rank: 16, max_staleness: 1 };
  const engine = await engineWith(MODELS, info);
  await expect(check(engine, run)).rejects.toThrow(lacks);
  await expect(check(engine, run)).rejects.toThrow(how);
  const named = check(engine, { ...run, engines: [engine] });
  await expect(named).rejects.toThrow('start vLLM with VLLM_ALLOW_RUNTIME_LORA_UPDATING=1 and --enable-lora');
  await expect(named).rejects.toThrow(/SGLang with --enable-lora --max-lora-rank 16 --max-loras-per-batch 3/);
});
