import { createServer } from 'node:http';
import { once } from 'node:events';
import { cp, mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest';
import { checkEngines, requireReplicas } from './check-engines.ts';

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

/** Starts an engine with these replies, on a port or, as the deployment's own is, on a socket. */
async function engineWith(reply: object | null, info: object | null = null, socket?: string): Promise<string> {
  const server = createServer(({ url }, response) => {
    const answer = url?.startsWith('/server_info') ? info : reply;
    if (answer === null) response.writeHead(503).end('loading');
    else response.end(JSON.stringify(answer));
  });
  server.listen(socket === undefined ? { port: 0, host: '127.0.0.1' } : { path: socket });
  await once(server, 'listening');
  onTestFinished(() => void server.close());
  if (socket !== undefined) return `unix:${socket}`;
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
      head_dtype: 'model',
      weight_broadcast: { type: 'auto', timeout: 600 },
      ...changes,
    },
    NO_RELAY,
    { home: folder },
  );

test('an engine with the run’s model, or another folder of its shape, passes; so does a folder that is not on this machine', async () => {
  for (const root of [join(folder, 'small'), join(folder, 'copy'), '/elsewhere/model']) await check(await vllm(root));
  await check(await vllm('org/model'), { model: 'org/model' });
});

test('sizes of multimodal models are those of their text models', async () => {
  for (const [name, hidden_size] of [
    ['gemma-4b', 2560],
    ['gemma-copy', 2560],
    ['gemma-12b', 3840],
  ] as const) {
    await mkdir(join(folder, name));
    const config = { architectures: ['Gemma3ForConditionalGeneration'], text_config: { hidden_size } };
    await writeFile(join(folder, name, 'config.json'), JSON.stringify(config));
  }
  const run = { model: join(folder, 'gemma-4b') };
  await check(await vllm(join(folder, 'gemma-copy')), run);
  await expect(check(await vllm(join(folder, 'gemma-12b')), run)).rejects.toThrow(/runs gemma-12b, the run file names/);
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

test('a name of the hub is compared with what an engine runs by its download', async () => {
  const download = join(folder, 'cache/huggingface/hub/models--org--large');
  await mkdir(join(download, 'snapshots/abc'), { recursive: true });
  await mkdir(join(download, 'refs'));
  await writeFile(join(download, 'refs/main'), 'abc');
  await writeFile(join(download, 'snapshots/abc/model.safetensors'), '');
  await cp(join(folder, 'large/config.json'), join(download, 'snapshots/abc/config.json'));
  await check(await vllm(join(folder, 'large')), { model: 'org/large' });
  await expect(check(await vllm(join(folder, 'small')), { model: 'org/large' })).rejects.toThrow(
    /runs small, the run file names large/,
  );
});

test('the deployment’s own engine is refused where it is uncertain that it has the run’s model, unless their names are the same', async () => {
  const models = { data: [{ id: 'policy', root: join(folder, 'small'), max_model_len: 1024 }] };
  const own = await engineWith(models, null, join(folder, 'engine.sock'));
  await check(own, { model: 'org/small' });
  await expect(check(own, { model: 'org/other' })).rejects.toThrow(/runs small, the run file names other/);
  await check(await vllm('/elsewhere/small'), { model: 'org/other' });
});

const floatHead = { head_dtype: 'float32' };
const started = (config: object) => ({ vllm_config: { lora_config: null, ...config } });
test.each([
  [
    'a head in float32',
    started({ model_config: { hf_overrides: floatHead } }),
    {},
    /npx trialgate up --head-dtype model/,
  ],
  ['a head in bfloat16', started({ model_config: { hf_overrides: {} } }), floatHead, /up --head-dtype float32/],
  ['a head in bfloat16', sglang(false), { ...floatHead, engines: ['e'] }, /SGLang with --enable-fp32-lm-head/],
  [
    'a head in float32',
    { ...sglang(false), enable_fp32_lm_head: true },
    {},
    /set `head_dtype: float32` in the run file/,
  ],
  [
    'weights from disk',
    started({ weight_transfer_config: null }),
    { weight_broadcast: { type: 'gloo' } },
    /was started to load weights from disk, .*'{"backend": "gloo"}' --worker-extension-cls/,
  ],
  [
    'weights by gloo',
    started({ weight_transfer_config: { backend: 'gloo' } }),
    { weight_broadcast: { type: 'nccl' } },
    /was started to receive weights by gloo, .*'{"backend": "nccl"}'$/,
  ],
  [
    'weights from disk',
    sglang(false),
    { weight_broadcast: { type: 'nccl' } },
    /is SGLang, which loads weights from disk/,
  ],
])('an engine with %s refuses a run that needs another, before it starts', async (_, info, run, message) => {
  await expect(check(await engineWith(MODELS, info), run)).rejects.toThrow(message);
});

test.each([
  [started({ model_config: { hf_overrides: floatHead } }), floatHead],
  [{ ...sglang(false), enable_fp32_lm_head: true }, floatHead],
  [started({ weight_transfer_config: { backend: 'gloo' } }), { weight_broadcast: { type: 'gloo' } }],
  [started({ model_config: {}, weight_transfer_config: { backend: 'gloo' } }), {}],
])('an engine that was started as %j may serve a run with %j', async (info, run) => {
  await check(await engineWith(MODELS, info), run);
});

test('a run that needs more replicas than it has engines is refused', () => {
  requireReplicas(['a', 'b'], { min_replicas: 2 });
  requireReplicas(['a'], { min_replicas: null });
  expect(() => requireReplicas(['a'], { min_replicas: 2 })).toThrow(
    'min_replicas: 2 replicas must confirm a publication, and the run has 1 engine: lower it, or add engines first',
  );
});
