/**
 * Runs verl-recipe PR 83's own `worker_client.py`, from a fetched copy of its repository, against this gateway with vLLM behind it. Agents
 * make calls of several turns, and the table compares what they got with what is recorded.
 *
 *   git clone https://github.com/verl-project/verl-recipe && git -C verl-recipe checkout 6e269d8
 *   node bench/verl-worker.ts --copy verl-recipe/agentic --calls 20
 */
import { existsSync, mkdirSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { z } from 'zod';
import { INSTALLS } from '../cli/folders.ts';
import { table } from '../cli/show/table.ts';
import { shutdownSignal } from '../cli/signals.ts';
import { TrialgateError } from '../core/errors.ts';
import { REPOSITORY } from '../core/repository.ts';
import { workersOf } from '../tests/support/harness/relay.ts';
import { until } from '../tests/support/harness/until.ts';
import { provenance } from './deployment.ts';
import { startChild } from './gateway/parts/child.ts';
import { BENCH_ADMIN_KEY, startGateway } from './gateway/parts/gateway.ts';
import { startPostgres } from './gateway/parts/postgres.ts';
import { startVllm } from './gateway/parts/vllm.ts';
import { optionsOf } from './options.ts';

const TURNS = 4;
const TOKENS = 24;

const { copy, calls } = optionsOf(import.meta.url, { copy: null, calls: 20 });
if (copy === null || !existsSync(join(copy, 'proxyserver/worker_client.py')))
  throw new TrialgateError(
    'bad_input',
    '--copy: name the folder that contains proxyserver/worker_client.py; see --help',
  );

const chat = z.object({ choices: z.tuple([z.object({ message: z.object({ content: z.string() }) })]) });
const record = z.object({
  turns: z.array(z.object({ completion_text: z.string(), untrainable: z.string().nullable() })),
});

const signal = shutdownSignal();
await using stack = new AsyncDisposableStack();
const postgres = stack.use(await startPostgres(signal));
const vllm = stack.use(await startVllm(signal));
const gateway = stack.use(await startGateway({ postgres, engine: 'relay', signal }));
stack.use(
  await startChild({
    name: 'the worker',
    file: INSTALLS.python,
    args: [
      join(REPOSITORY, 'bench/verl-worker/serve.py'),
      resolve(copy),
      `${gateway.url.replace('http', 'ws')}/ws/worker?key=${BENCH_ADMIN_KEY}`,
      INSTALLS.smallModel,
      vllm.url.replace('unix:', ''),
    ],
    env: { ...process.env, HF_HUB_OFFLINE: '1' },
    ready: /(worker started)/,
    signal,
  }),
);
await until(async () => (await workersOf(gateway.url, BENCH_ADMIN_KEY)).length > 0);

const trials = Math.ceil(calls / TURNS);
const outcomes = await Promise.all(Array.from({ length: trials }, (_, at) => converse(`verl-${at}`)));
const rows = outcomes.map(({ id, statuses, said, recorded, why }) => [
  id,
  statuses.join(' '),
  `${recorded.length}`,
  recorded.join('\n') === said.join('\n') ? 'yes' : 'no',
  why,
]);
const text = table(['trial', 'answers', 'turns recorded', 'as its agent saw them', 'untrainable, because'], rows);
console.log(text);
mkdirSync(join(REPOSITORY, 'bench/results'), { recursive: true });
writeFileSync(
  join(REPOSITORY, 'bench/results/verl-worker.txt'),
  `${JSON.stringify(provenance(), null, 2)}\n\n${text}\n`,
);
process.exitCode = rows.every(([, answers, , same]) => answers === Array(TURNS).fill(200).join(' ') && same === 'yes')
  ? 0
  : 1;

async function converse(id: string) {
  const ask = async (path: string, key: string, body?: unknown) =>
    fetch(`${gateway.url}${path}`, {
      method: body === undefined ? 'GET' : 'POST',
      headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
      body: JSON.stringify(body),
      signal,
    });
  const opened = await ask(`/sessions/${id}`, BENCH_ADMIN_KEY, {});
  const { api_key: key } = z.object({ api_key: z.string() }).parse(await opened.json());
  const messages = [];
  const statuses = [];
  const said = [];
  for (let turn = 1; turn <= TURNS; turn++) {
    messages.push({ role: 'user', content: `Question ${turn}: name one thing that is blue.` });
    const reply = await ask(`/${id}/v1/chat/completions`, key, { model: 'policy', messages, max_tokens: TOKENS });
    statuses.push(reply.status);
    if (!reply.ok) throw new Error(`${id} got ${reply.status}: ${await reply.text()}`);
    const { message } = chat.parse(await reply.json()).choices[0];
    messages.push({ role: 'assistant', content: message.content });
    said.push(message.content);
  }
  const { turns } = record.parse(await (await ask(`/sessions/${id}`, BENCH_ADMIN_KEY)).json());
  return {
    id,
    statuses,
    said,
    recorded: turns.map((turn) => turn.completion_text),
    why: [...new Set(turns.map(({ untrainable }) => untrainable ?? 'trainable'))].join(', '),
  };
}
