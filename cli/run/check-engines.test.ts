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

async function engineWith(reply: object | null): Promise<string> {
  const server = createServer((_, response) =>
    reply === null ? response.writeHead(503).end('loading') : response.end(JSON.stringify(reply)),
  ).listen(0, '127.0.0.1');
  await once(server, 'listening');
  onTestFinished(() => void server.close());
  const address = server.address();
  return `http://127.0.0.1:${address !== null && typeof address === 'object' ? address.port : 0}`;
}

const vllm = (root: string, max_model_len = 1024) => engineWith({ data: [{ id: 'policy', root, max_model_len }] });
const check = (engine: string, changes: object = {}) =>
  checkEngines([engine], {
    model: join(folder, 'small'),
    max_prompt_length: 512,
    max_response_length: 128,
    engines: [],
    ...changes,
  });

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
  ['has no socket', async () => 'unix:/nowhere.sock', {}, /unix:\/nowhere\.sock cannot be reached: .*ENOENT/],
])('an engine that %s refuses the run before it starts', async (_, engine, changes, message) => {
  await expect(check(await engine(), changes)).rejects.toThrow(message);
});
