/**
 * Other people's agents and SDKs against the gateway, each with a home of its own: what they asked, and what the record has of it.
 * `toy` is an engine that says what each needs to hear to use its tools and come to its end; `vllm` is the real one with SmolLM2, whose
 * text at such prompts is nonsense, with replies of a few tokens.
 *
 *   node bench/clients.ts --engine toy
 *   node bench/clients.ts --engine vllm --only mini-swe-agent,langgraph,aider
 */
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { REPOSITORY } from '../cli/folders.ts';
import { table } from '../cli/show/table.ts';
import { CLIENTS } from '../gateway/clients/all.ts';
import type { Client } from '../gateway/clients/client.ts';
import { install } from '../gateway/clients/install.ts';
import { runClient } from '../gateway/clients/run.ts';
import { recordedOf } from '../gateway/clients/session.ts';
import { play } from '../gateway/clients/toy.ts';
import { startGateway } from '../gateway/node.ts';
import { withVllm } from '../gateway/testing/own-vllm.ts';
import { TokenEngine } from '../gateway/testing/token-engine.ts';
import { trialOverHttp } from '../gateway/testing/trial-over-http.ts';
import { TestPostgres } from '../store/testing/postgres.ts';
import { provenance } from './deployment.ts';

const { values } = parseArgs({ options: { engine: { type: 'string', default: 'toy' }, only: { type: 'string' }, limit: { type: 'string', default: '120' } } });
const only = values.only?.split(',');
const chosen = CLIENTS.filter(({ name }) => !only || only.includes(name));
const signal = AbortSignal.timeout(3_600_000);
const rows: string[][] = [];

async function runAll(engine: string, before: (client: Client) => void, sampling: Record<string, number>): Promise<void> {
  const postgres = await TestPostgres.create();
  const gateway = await startGateway({ host: '127.0.0.1', port: 0, engines: [engine], databaseUrl: postgres.url, adminKey: 'bench', secret: 'a secret of sixteen characters' });
  for (const client of chosen) {
    before(client);
    rows.push([client.name, versionOf(client), ...(await runOne(client, gateway.url, sampling).catch((error: unknown) => [`did not run: ${String(error).slice(0, 200)}`]))]);
    console.log(rows.at(-1)?.join(' '));
  }
  await gateway.close();
  await postgres.close();
}

async function runOne(client: Client, url: string, sampling: Record<string, number>): Promise<string[]> {
  const folder = await install(client, signal);
  const trial = await trialOverHttp({ url, adminKey: 'bench' }, client.name, { sampling });
  const ran = await runClient(client, { folder, trialUrl: `${url}/${client.name}`, key: trial.key, limitMs: 1_000 * Number(values.limit) });
  if (ran.code !== 0) console.log(ran.output.slice(-1_500));
  const { protocols, calls, unfinished, clean, realigned, forked, untrainable, samples, trained, tokens } = recordedOf(await trial.session(), await trial.samples());
  return [protocols.join(' '), ran.timedOut ? 'timed out' : String(ran.code), ...[calls, unfinished, clean, realigned, forked, untrainable, samples, tokens, trained].map(String), ran.seconds.toFixed(0)];
}

const versionOf = ({ install: from }: Client): string => /[^=@]+$/.exec('npm' in from ? from.npm : (from.pip[0] ?? ''))?.[0] ?? '';

if (values.engine === 'vllm') {
  const room = ['--max-model-len', '8192'];
  await withVllm((url) => runAll(url, () => {}, { temperature: 1, max_tokens: 16 }), signal, room);
} else {
  const engine = await new TokenEngine().start();
  await runAll(engine.url, (client) => play(engine, client), { temperature: 1 });
  await engine.stop();
}
const head = ['client', 'version', 'protocols', 'exit', 'calls', 'unfinished', 'clean', 'realigned', 'forked', 'untrainable', 'samples', 'tokens', 'trained', 'seconds'];
const text = `${JSON.stringify(provenance(), null, 2)}\n\nengine: ${values.engine}\n\n${table(head, rows)}\n`;
console.log(text);
mkdirSync(join(REPOSITORY, 'bench/results'), { recursive: true });
writeFileSync(join(REPOSITORY, `bench/results/clients${values.engine === 'toy' ? '' : `-${values.engine}`}.txt`), text);
