import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { text } from 'node:stream/consumers';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { z } from 'zod';
import { INSTALLS } from '../../cli/folders.ts';
import { relayKey } from '../../core/keys.ts';
import { replicas } from '../../store/schema.ts';
import { ADMIN_KEY, ASK, eventually, SECRET } from '../support/harness/gateways.ts';
import { TestWorker } from '../support/harness/relay.ts';
import { useToyGateways } from '../support/harness/token-gateway.ts';
import { SglangEngine } from '../support/fakes/sglang/sglang-engine.ts';

const context = useToyGateways(() => new SglangEngine());
let folder: string;
beforeEach(() => {
  folder = mkdtempSync(path.join(tmpdir(), 'trialgate-sglang-'));
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

const PUBLISH = `
import asyncio, json, sys
from pathlib import Path
from trialgate_gpu.manifest import Manifest
from trialgate_gpu.progress import Progress
from trialgate_gpu.publish import publish_policy

request = json.loads(sys.argv[1])
canary = request["canary"]
Path(request["checkpoint"]).mkdir()
Manifest("run", 2, "k", None, None, {}, "c", "w2", 0, {}, canary).write(Path(request["checkpoint"]))
print(json.dumps(asyncio.run(publish_policy(request, Progress()))))
`;

const report = z.object({
  published: z.boolean(),
  replicas: z.array(z.object({ ok: z.boolean(), weight_version: z.string().nullable(), error: z.string().nullable() })),
});

/** Publishes version 2 as a gpu-worker does, to an engine at this URL. */
async function publish(url: string) {
  const token_ids = [50, 51, 52, 53];
  const request = {
    weight_version: 'run@2',
    checkpoint: path.join(folder, 'v2'),
    replicas: [url],
    min_replicas: 1,
    canary: { token_ids, logprobs: token_ids.slice(1).map(context.toy.logprob) },
  };
  const child = spawn(INSTALLS.python, ['-c', PUBLISH, JSON.stringify(request)], {
    env: {
      ...process.env,
      PYTHONPATH: INSTALLS.gpuWorkers,
      TRIALGATE_RELAY_URL: context.gateway.url,
      TRIALGATE_RELAY_KEY: relayKey(SECRET),
    },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const [output] = await Promise.all([text(child.stdout), once(child, 'exit')]);
  return report.parse(JSON.parse(output));
}

test('the publisher gives an SGLang new weights while it samples, and each token is recorded under the version that sampled it', async () => {
  await context.serve();
  await publishedWhileSampling(context.toy.url);
});

test('through the gateway the publisher gives an SGLang behind a relay worker new weights while it samples, and each token is recorded under the version that sampled it', async () => {
  await context.serve({}, { engines: ['relay'] });
  const { url: gateway } = context.gateway;
  const worker = new TestWorker({ gateway, engine: context.toy.url, adminKey: ADMIN_KEY, id: 'w1' });
  await eventually(async () => (await context.db.select().from(replicas)).length === 1);
  await publishedWhileSampling('relay:w1');
  await worker.stop();
});

async function publishedWhileSampling(url: string): Promise<void> {
  Object.assign(context.toy, { weightVersion: 'run@1', pace: 50 });
  await context.givePool('run', 'run@1');
  const trial = await context.trial({ runId: 'run' });
  context.toy.script = [{ text: 'x'.repeat(5_000) }];
  const reply = trial.chat(ASK);
  await eventually(() => (context.toy.scheduler.running[0]?.output.length ?? 0) > 5);
  await context.givePool('run', 'run@2', false);
  expect(await publish(url)).toEqual({
    published: true,
    replicas: [{ ok: true, weight_version: 'run@2', error: null }],
  });
  context.toy.pace = 0;
  expect((await reply).status).toBe(200);
  const [call] = await trial.calls();
  expect(call).toMatchObject({ status: 'completed', engine: url, untrainable: null });
  expect(call?.versionSpans).toMatchObject([
    { version: 1, start: 0 },
    { version: 2, end: 5_001 },
  ]);
}
