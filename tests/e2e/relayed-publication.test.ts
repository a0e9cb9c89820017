import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { text } from 'node:stream/consumers';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { z } from 'zod';
import { INSTALLS } from '../../cli/folders.ts';
import { relayKey } from '../../core/keys.ts';
import { replicas } from '../../store/schema.ts';
import { ADMIN_KEY, eventually, SECRET } from '../support/harness/gateways.ts';
import { sha256Of } from '../support/harness/checkpoints.ts';
import { TestWorker } from '../support/harness/relay.ts';
import { useTokenGateways } from '../support/harness/token-gateway.ts';

const gateway = useTokenGateways();
let [folder, told]: [string, string] = ['', ''];
let [engine, worker]: [ChildProcess | null, TestWorker | null] = [null, null];
beforeEach(() => {
  folder = mkdtempSync(path.join(tmpdir(), 'trialgate-published-'));
  told = '';
});
afterEach(async () => {
  await worker?.stop();
  if (engine && engine.exitCode === null) {
    engine.kill();
    await once(engine, 'exit');
  }
  rmSync(folder, { recursive: true, force: true });
});

/** Serves an engine's control routes, and prints what the engine was asked to do, and what it finds in the folders that it loads. */
const SERVE = `
import asyncio, hashlib, json, sys
from pathlib import Path
from scripted_engine import ScriptedEngine
from scripted_sglang import ScriptedSglang

def show(folder):
    files = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in Path(folder).iterdir()}
    print(json.dumps([folder, files]), flush=True)

class Told({"vllm": ScriptedEngine, "sglang": ScriptedSglang}[sys.argv[2]]):
    async def answer(self, route, body):
        if "pause" in route or route in ("/resume", "/continue_generation", "/collective_rpc", "/weight_checker"):
            print(json.dumps([route, {}]), flush=True)
        return await super().answer(route, body)

    async def reload(self, folder):
        show(folder)
        return await super().reload(folder)

    def change_adapter(self, route, body):
        if body.get("lora_path"):
            show(body["lora_path"])
        return super().change_adapter(route, body)

async def main():
    engine = Told(Path(sys.argv[1]), [-1.01, -2.02])
    engine.max_lora_rank, engine.adapter_logprobs = 8, [-1.51, -2.52]
    async with engine.running():
        await asyncio.Event().wait()

asyncio.run(main())
`;

const PUBLISH = `
import asyncio, hashlib, json, sys
from pathlib import Path
import torch
from safetensors.torch import save
from trialgate_gpu.manifest import Manifest
from trialgate_gpu.progress import Progress
from trialgate_gpu.publish import publish_policy

home = Path(sys.argv[1])
checkpoints = home / "checkpoints"
of_model = {"token_ids": [1, 2, 3], "logprobs": [-1.0, -2.0]}
of_adapter = {"token_ids": [1, 2, 3], "logprobs": [-1.5, -2.5]}
sha = lambda content: hashlib.sha256(content).hexdigest()

def write(name, canary, files, lora=None, links={}, version=1):
    folder = checkpoints / name
    folder.mkdir(parents=True)
    for file, content in files.items():
        (folder / file).write_bytes(content)
    for file, target in links.items():
        (folder / file).parent.mkdir(exist_ok=True)
        (folder / file).symlink_to(target)
    known = {file: sha((folder / file).read_bytes()) for file in [*files, *links] if file.endswith(".safetensors")}
    Manifest("run", version, "k", None, None, known, name, name, 0, {}, canary, lora=lora).write(folder)
    return folder

def model(version, content=None):
    files = {"model.safetensors": content or f"weights {version}".encode(), "config.json": b"{}"}
    return write(f"m{version}", of_model, files, version=version)

def adapter(version):
    (home / "model").mkdir(exist_ok=True)
    links = {f"base/{file}": home / "model" / file for file in ("model.safetensors", "config.json")}
    for file in links.values():
        file.write_bytes(b"{}")
    tensors = save({"base_model.model.q_proj.lora_B.weight": torch.full((2, 2), float(version))})
    files = {"adapter_model.safetensors": tensors, "adapter_config.json": b"{}"}
    lora = {"rank": 8, "alpha": 16.0, "target_modules": "all-linear", "seed": 0}
    return write(f"a{version}", of_adapter, files, lora, links, version)

def publish(version, checkpoint, canary):
    request = {"weight_version": f"run@{version}", "checkpoint": str(checkpoint), "replicas": ["relay:w1"]}
    request |= {"min_replicas": 1, "canary": canary}
    print(json.dumps(asyncio.run(publish_policy(request, Progress()))), flush=True)
`;

/** The file of a socket exists before it can be connected to. */
const listens = (socket: string): Promise<boolean> =>
  new Promise((resolve) => {
    const connection = connect(socket, () => {
      connection.destroy();
      resolve(true);
    });
    connection.on('error', () => resolve(false));
  });

const report = z.object({
  published: z.boolean(),
  replicas: z.tuple([z.looseObject({ ok: z.boolean(), error: z.string().nullable() })]),
});
const loaded = z.tuple([z.string(), z.record(z.string(), z.string())]);

const python = (code: string, args: string[], env: Record<string, string> = {}) =>
  spawn(INSTALLS.python, ['-c', code, ...args], {
    env: { ...process.env, PYTHONPATH: INSTALLS.gpuWorkers, PYTHONDONTWRITEBYTECODE: '1', ...env },
    stdio: ['ignore', 'pipe', 'inherit'],
  });

/** Starts a deployment in `folder/home`, and an engine of this kind behind a relay worker. */
async function start(kind: 'vllm' | 'sglang', copies?: string): Promise<void> {
  await gateway.serve({}, { engines: ['relay'], checkpoints: path.join(folder, 'home/checkpoints') });
  const socket = path.join(folder, 'engine.sock');
  const serving = python(SERVE, [socket, kind]);
  engine = serving;
  serving.stdout.on('data', (bytes: Buffer) => void (told += bytes.toString()));
  await eventually(() => listens(socket));
  const { url } = gateway.gateway;
  worker = new TestWorker({
    gateway: url,
    engine: `unix:${socket}`,
    adminKey: ADMIN_KEY,
    id: 'w1',
    checkpoints: copies,
  });
  await Promise.race([
    eventually(async () => (await gateway.db.select().from(replicas)).length === 1),
    worker.ended.then((reason) => Promise.reject(new Error('the relay worker ended', { cause: reason }))),
  ]);
}

/** Publishes as a gpu-worker does, and returns what it says of each publication. */
async function publish(steps: string) {
  const env = { TRIALGATE_RELAY_URL: gateway.gateway.url, TRIALGATE_RELAY_KEY: relayKey(SECRET) };
  const published = python(PUBLISH + steps, [path.join(folder, 'home')], env);
  const lines = (await text(published.stdout)).trim().split('\n');
  return lines.map((line) => report.parse(JSON.parse(line)));
}

const asked = () =>
  told
    .trim()
    .split('\n')
    .map((line) => loaded.parse(JSON.parse(line)));

test('the trainer’s publisher pauses, loads, checks and resumes an engine behind a relay worker, through the gateway', async () => {
  await start('vllm');
  expect(await publish('publish(1, model(1), of_model)')).toMatchObject([
    {
      published: true,
      replicas: [{ ok: true, url: 'relay:w1', weight_version: 'run@1', checksum: expect.any(String) }],
    },
  ]);
  expect(asked().map(([route]) => route)).toEqual([
    '/pause',
    '/collective_rpc',
    path.join(folder, 'home/checkpoints/m1'),
    '/resume',
    '/weight_checker',
  ]);
});

const PAUSES = ['/pause', '/pause_generation'];
const DAMAGED = /^the relay worker cannot fetch .*\/m5: its file model\.safetensors: .* does not have its SHA-256/;

test.each(['vllm', 'sglang'] as const)(
  'where the machine of a %s does not see the deployment’s folder, its relay worker fetches models, adapters and their base, and a damaged one pauses no engine',
  async (kind) => {
    const copies = path.join(folder, 'copies');
    await start(kind, copies);
    const reports = await publish(`
publish(1, model(1), of_model)
publish(2, model(2), of_model)
publish(3, adapter(3), of_adapter)
publish(4, adapter(4), of_adapter)
# The engine lists the adapter under the path of its copy, and the publisher finds it there.
publish(4, checkpoints / "a4", of_adapter)
(model(5) / "model.safetensors").write_bytes(b"other")
publish(5, checkpoints / "m5", of_model)
`);
    const errors = reports.map(({ replicas: [{ error }] }) => error);
    expect(errors).toEqual([...Array(5).fill(null), expect.stringMatching(DAMAGED)]);
    expect(reports.map(({ published }) => published)).toEqual(errors.map((error) => error === null));
    expect(asked().filter(([route]) => PAUSES.includes(route))).toHaveLength(3);
    const loads = asked().filter(([, files]) => Object.keys(files).length > 0);
    const copyOf = (name: string) =>
      path.join(copies, 'trialgate-checkpoints/copies', folder, 'home/checkpoints', name, 'trialgate-copy');
    expect(loads.map(([at]) => at)).toEqual(['m1', 'm2', 'a3/base', 'a3', 'a4'].map(copyOf));
    expect(loads.map(([, files]) => files)).toEqual([
      { 'config.json': sha256Of('{}'), 'model.safetensors': sha256Of('weights 1') },
      { 'config.json': sha256Of('{}'), 'model.safetensors': sha256Of('weights 2') },
      { 'config.json': sha256Of('{}'), 'model.safetensors': sha256Of('{}') },
      { 'adapter_config.json': sha256Of('{}'), 'adapter_model.safetensors': expect.any(String) },
      { 'adapter_config.json': sha256Of('{}'), 'adapter_model.safetensors': expect.any(String) },
    ]);
  },
);
