/**
 * Measures how long many trials of one agent take to their first calls, all started at once or at most `--at-once`: each in a sandbox of its own with a copy of the
 * task's files. The model is a server that answers at once. The baselines are the same trials without the packages' bytecode, and for a
 * function agent, trials that each import its module; its warm trials are measured with a new fork server and again with the same one.
 *
 *   node bench/agents.ts --agent examples/langgraph/agent/agent.yaml --trials 64
 *   node bench/agents.ts --agent aider --trials 64 --at-once 8 --repository .
 *
 * `--repository` copies the files that git knows in this folder into each sandbox. `--home` keeps the agent's packages for the next time.
 */
import { execFile } from 'node:child_process';
import { mkdir } from 'node:fs/promises';
import { createServer } from 'node:http';
import { once } from 'node:events';
import { join } from 'node:path';
import { json } from 'node:stream/consumers';
import { promisify } from 'node:util';
import { agentEnvironment } from '../activities/environments/agent-environment.ts';
import { createSandbox } from '../activities/sandbox/create-sandbox.ts';
import { destroySandbox } from '../activities/sandbox/destroy-sandbox.ts';
import { isolation } from '../activities/sandbox/isolation.ts';
import { loadAgent } from '../activities/sandbox/load-agent.ts';
import { runAgentProcess, type AgentResult } from '../activities/sandbox/run-agent-process.ts';
import { shutdownSignal } from '../cli/signals.ts';
import { table } from '../cli/show/table.ts';
import { taskWith, temporaryHome } from '../tests/support/harness/sandbox-fixtures.ts';
import { provenance } from './deployment.ts';
import { optionsOf } from './options.ts';
import { openBackend } from '../activities/sandbox/backends.ts';
import { bubblewrapBackend } from '../activities/sandbox/bubblewrap-backend.ts';

const backend = await openBackend();

const options = optionsOf(import.meta.url, {
  agent: 'examples/langgraph/agent/agent.yaml',
  trials: 64,
  'at-once': 64,
  repository: null,
  home: null,
});
const signal = shutdownSignal();
const run = promisify(execFile);

/** The time of the first call of each trial. */
const firstCalls = new Map<string, number>();
const server = createServer(async (request, response) => {
  const trial = /^\/([^/]+)\//.exec(request.url ?? '')?.[1] ?? '';
  if (!firstCalls.has(trial)) firstCalls.set(trial, performance.now());
  const asked: unknown = request.method === 'POST' ? await json(request).catch(() => null) : null;
  const isStream = typeof asked === 'object' && asked !== null && Reflect.get(asked, 'stream') === true;
  const message = { role: 'assistant', content: 'I have nothing to change.' };
  const head = { id: 'x', created: 1, model: 'policy' };
  const usage = { prompt_tokens: 1, completion_tokens: 1, total_tokens: 2 };
  if (!isStream) {
    const choices = [{ index: 0, message, finish_reason: 'stop' }];
    response.setHeader('content-type', 'application/json');
    return response.end(JSON.stringify({ ...head, object: 'chat.completion', choices, usage }));
  }
  response.setHeader('content-type', 'text/event-stream');
  const choices = [{ index: 0, delta: message, finish_reason: 'stop' }];
  response.end(`data: ${JSON.stringify({ ...head, object: 'chat.completion.chunk', choices })}\n\ndata: [DONE]\n\n`);
});
server.listen(0, '127.0.0.1');
await once(server, 'listening');
const address = server.address();
const gateway = `http://127.0.0.1:${typeof address === 'object' ? address?.port : 0}`;

await using folder = await temporaryHome();
const { home } = folder;
const agent = await loadAgent(options.agent);
const environment = await agentEnvironment(agent, {
  home: options.home ?? home,
  signal,
  report: (line) => console.error(line),
});
const task = { ...(await taskWith(home, 'true')), instruction: 'Calculate 12 + 30.', agent: { timeoutSec: 900 } };
if (options.repository !== null) {
  const copied = join(task.folder, 'environment');
  await mkdir(copied, { recursive: true });
  await run('sh', ['-c', 'git -C "$0" archive HEAD | tar -x -C "$1"', options.repository, copied]);
}
const here = await isolation();

type Round = { created: number; first: number; all: number; ended: number; failed: number; bytes: number };

/** Makes all sandboxes, starts all agents at once, and returns the seconds of each part. */
async function round(
  name: string,
  { isWarm, env = {} }: { isWarm: boolean; env?: Record<string, string> },
): Promise<Round> {
  const keys = Array.from({ length: options.trials }, (_, index) => ({
    home,
    trialId: `${name}-${index}`,
    attempt: 1,
  }));
  const start = performance.now();
  const sandboxes = await Promise.all(
    keys.map(async (key) => ({ key, sandbox: await createSandbox({ backend, ...key, task, signal }) })),
  );
  const created = performance.now();
  const results: AgentResult[] = [];
  const waiting = [...sandboxes];
  const runNext = async (): Promise<void> => {
    for (let next = waiting.shift(); next !== undefined; next = waiting.shift())
      results.push(
        await runAgentProcess({
          agent: { ...agent, isWarm, env: { ...agent.env, ...env } },
          task,
          sandbox: next.sandbox,
          backend: bubblewrapBackend(here),
          environment,
          trialId: next.key.trialId,
          gateway,
          network: 'gateway',
          apiKey: 'a key',
          model: 'policy',
          signal,
        }),
      );
  };
  await Promise.all(Array.from({ length: options['at-once'] }, runNext));
  const ended = performance.now();
  const failed = results.filter(({ ending }) => ending !== 'done');
  const [failure] = failed;
  if (failure) console.error(`${failed.length} agents failed, the first: ${failure.reason}`);
  const { stdout } = await run('du', ['-sbc', ...sandboxes.map(({ sandbox }) => sandbox.root)], { maxBuffer: 2 ** 24 });
  const calls = keys.flatMap(({ trialId }) => firstCalls.get(trialId) ?? []);
  if (calls.length < keys.length) console.error(`${keys.length - calls.length} agents made no call`);
  for (const key of keys) await destroySandbox({ ...key, backend });
  return {
    created: (created - start) / 1000,
    first: (Math.min(...calls) - created) / 1000,
    all: (Math.max(...calls) - created) / 1000,
    ended: (ended - created) / 1000,
    failed: failed.length,
    bytes: Number(/^(\d+)\ttotal$/m.exec(stdout)?.[1] ?? NaN) / keys.length,
  };
}

/** Python looks for bytecode in a folder that does not exist. */
const WITHOUT_BYTECODE = { PYTHONPYCACHEPREFIX: '/nowhere' };
const rounds: [string, Round][] = [
  ['cold, without bytecode', await round('plain', { isWarm: false, env: WITHOUT_BYTECODE })],
  ['cold', await round('cold', { isWarm: false })],
];
if (agent.isWarm)
  rounds.push(
    ['warm, with its import', await round('first', { isWarm: true })],
    ['warm', await round('warm', { isWarm: true })],
  );
server.close().closeAllConnections();
console.log(
  JSON.stringify(
    { ...provenance(), agent: options.agent, trials: options.trials, atOnce: options['at-once'], isolation: here.kind },
    null,
    2,
  ),
);
console.log(
  `\n${table(
    [
      'start',
      's to make the sandboxes',
      's to the first call',
      's to all first calls',
      's to the end of all',
      'failed',
      'KB of a sandbox',
    ],
    rounds.map(([name, each]) => [
      name,
      each.created.toFixed(1),
      each.first.toFixed(1),
      each.all.toFixed(1),
      each.ended.toFixed(1),
      String(each.failed),
      (each.bytes / 1024).toFixed(0),
    ]),
  )}`,
);
process.exit(0);
