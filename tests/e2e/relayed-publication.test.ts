import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { text } from 'node:stream/consumers';
import { afterEach, expect, test } from 'vitest';
import { z } from 'zod';
import { INSTALLS } from '../../cli/folders.ts';
import { relayKey } from '../../core/keys.ts';
import { replicas } from '../../store/schema.ts';
import { ADMIN_KEY, eventually, SECRET } from '../support/harness/gateways.ts';
import { TestWorker } from '../support/harness/relay.ts';
import { useTokenGateway } from '../support/harness/token-gateway.ts';

const gateway = useTokenGateway({ engines: ['relay'] });
const folder = mkdtempSync(path.join(tmpdir(), 'trialgate-published-'));
const socket = path.join(folder, 'engine.sock');
let [engine, worker]: [ChildProcess | null, TestWorker | null] = [null, null];
afterEach(async () => {
  await worker?.stop();
  if (engine && engine.exitCode === null) {
    engine.kill();
    await once(engine, 'exit');
  }
  rmSync(folder, { recursive: true, force: true });
});

/** Serves vLLM's control routes, and prints what the engine was asked to do. */
const SERVE = `
import asyncio, sys
from pathlib import Path
from scripted_engine import ScriptedEngine

class Told(ScriptedEngine):
    async def control(self, route, body):
        if route in ("/pause", "/resume", "/collective_rpc", "/weight_checker"):
            print(route, flush=True)
        return await super().control(route, body)

async def main():
    async with Told(Path(sys.argv[1]), [-1.01, -2.02]).running():
        await asyncio.Event().wait()

asyncio.run(main())
`;

const PUBLISH = `
import asyncio, json, sys
from pathlib import Path
from trialgate_gpu.manifest import Manifest
from trialgate_gpu.progress import Progress
from trialgate_gpu.publish import publish_policy

folder = Path(sys.argv[1])
canary = {"token_ids": [1, 2, 3], "logprobs": [-1.0, -2.0]}
Manifest("run", 1, "k", None, None, {}, "c", "w1", 0, {}, canary).write(folder)
request = {"weight_version": "run@1", "checkpoint": str(folder), "replicas": ["relay:w1"], "min_replicas": 1}
print(json.dumps(asyncio.run(publish_policy(request | {"canary": canary}, Progress()))))
`;

/** The file of a socket exists before it can be connected to. */
const listens = (): Promise<boolean> =>
  new Promise((resolve) => {
    const connection = connect(socket, () => {
      connection.destroy();
      resolve(true);
    });
    connection.on('error', () => resolve(false));
  });

const report = z.object({ published: z.boolean(), replicas: z.array(z.looseObject({ ok: z.boolean() })) });

const python = (code: string, argument: string, env: Record<string, string> = {}) =>
  spawn(INSTALLS.python, ['-c', code, argument], {
    env: { ...process.env, PYTHONPATH: INSTALLS.gpuWorkers, PYTHONDONTWRITEBYTECODE: '1', ...env },
    stdio: ['ignore', 'pipe', 'inherit'],
  });

test('the trainer’s publisher pauses, loads, checks and resumes an engine behind a relay worker, through the gateway', async () => {
  const serving = python(SERVE, socket);
  engine = serving;
  let told = '';
  serving.stdout.on('data', (bytes: Buffer) => void (told += bytes.toString()));
  await eventually(listens);
  const { url } = gateway.gateway;
  worker = new TestWorker({ gateway: url, engine: `unix:${socket}`, adminKey: ADMIN_KEY, id: 'w1' });
  await Promise.race([
    eventually(async () => (await gateway.db.select().from(replicas)).length === 1),
    worker.ended.then((reason) => Promise.reject(new Error('the relay worker ended', { cause: reason }))),
  ]);
  const env = { TRIALGATE_RELAY_URL: url, TRIALGATE_RELAY_KEY: relayKey(SECRET) };
  const published = python(PUBLISH, folder, env);
  expect(report.parse(JSON.parse(await text(published.stdout)))).toMatchObject({
    published: true,
    replicas: [{ ok: true, url: 'relay:w1', weight_version: 'run@1', checksum: expect.any(String) }],
  });
  expect(told.trim().split('\n')).toEqual(['/pause', '/collective_rpc', '/resume', '/weight_checker']);
});
