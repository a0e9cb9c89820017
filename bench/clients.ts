/**
 * Runs other people's agents and SDKs against the gateway, each with its own home, and shows their requests and the gateway's record of them.
 * `toy` is an engine that gives each client the replies it needs to use its tools and finish. A table shows by mode whether its calls are trained. `vllm` is the real engine with SmolLM2, whose
 * text for such prompts is nonsense, with replies of a few tokens at temperature 0 and without token-in. Each client's answers are
 * compared with vLLM's own answers to the same requests. With vLLM a client calls no tool and makes one request only, so each client's
 * session of several turns with tools on the toy engine is also replayed to both.
 *
 *   node bench/clients.ts --engine toy
 *   node bench/clients.ts --engine vllm --only mini-swe-agent,langgraph,aider
 */
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { REPOSITORY } from '../core/repository.ts';
import { shutdownSignal } from '../cli/signals.ts';
import { table } from '../cli/show/table.ts';
import { CLIENTS } from '../tests/clients/all.ts';
import {
  clientBesideVllm,
  differs,
  firstDifference,
  isAnswered,
  ONE_AT_A_TIME,
  refusedIn,
  sessionBesideVllm,
  type Comparison,
} from '../tests/clients/beside-vllm.ts';
import type { Client } from '../tests/clients/client.ts';
import { install } from '../tests/clients/install.ts';
import { MODE_HEAD, modeRowsIn, withModes } from '../tests/clients/page.ts';
import type { RunResult } from '../tests/clients/run.ts';
import { toySession } from '../tests/clients/toy-session.ts';
import { startGateway, type NodeGateway } from '../gateway/runtimes/node/start-gateway.ts';
import { withVllm } from '../tests/support/harness/own-vllm.ts';
import { TestPostgres } from '../tests/support/harness/postgres.ts';
import { provenance } from './deployment.ts';
import { optionsOf } from './options.ts';

const values = optionsOf(import.meta.url, { engine: 'toy', only: null, limit: 240 });
const only = values.only?.split(',');
const chosen = CLIENTS.filter(
  ({ name, besideVllm }) => (!only || only.includes(name)) && (values.engine === 'toy' || besideVllm),
);
const signal = shutdownSignal();
const limitMs = 1_000 * values.limit;
const ADMIN_KEY = 'the bench';
const postgres = await TestPostgres.create();
const rows: string[][] = [];
const differences: string[] = [];
/** One row for each mode of a client. */
const modes: string[][] = [];

async function runAll(runOne: (client: Client) => Promise<string[]>): Promise<void> {
  for (const client of chosen) {
    if (signal.aborted) break;
    rows.push([
      client.name,
      versionOf(client),
      ...(await runOne(client).catch((error: unknown) => [`did not run: ${String(error).slice(0, 200)}`])),
    ]);
    console.log(rows.at(-1)?.join(' '));
  }
}

async function besideToy(client: Client): Promise<string[]> {
  const at = { folder: await install(client.install, signal), databaseUrl: postgres.url, limitMs };
  const { ran, recorded, modes: found, faults, tries } = await toySession(client, at);
  const hinted = client.modes.some(({ constrained }) => constrained)
    ? (await toySession(client, { ...at, sampling: { constrained_decoding: 'hint' } })).modes
    : found;
  const trainable = (those: typeof found, name: string) =>
    those.flatMap(({ mode, calls, untrainable }) => (mode === name ? [calls - untrainable] : []))[0] ?? 'did not run';
  modes.push(
    ...found.map(({ mode, calls, clean, reasons }) => [
      client.name,
      mode,
      ...[calls, trainable(found, mode), trainable(hinted, mode), clean].map(String),
      reasons.join(' '),
    ]),
  );
  differences.push(...faults.map((fault) => `${client.name}: ${fault}`));
  const { protocols, calls, unfinished, clean, drifted, branched, untrainable, samples, trained, tokens } = recorded;
  return [
    protocols.join(' '),
    exitOf(ran),
    ...[calls, unfinished, clean, drifted, branched, untrainable, samples, tokens, trained, faults.length, tries].map(
      String,
    ),
    ran.seconds.toFixed(0),
  ];
}

async function allBesideVllm(vllm: string): Promise<void> {
  const gateway = await startGateway({
    host: '127.0.0.1',
    port: 0,
    engines: [vllm],
    databaseUrl: postgres.url,
    adminKey: ADMIN_KEY,
    secret: 'a secret of sixteen characters',
    settings: { tokenIn: false },
  });
  await runAll((client) => besideReal(vllm, client, gateway));
  await gateway.close();
}

async function besideReal(vllm: string, client: Client, { url }: NodeGateway): Promise<string[]> {
  const at = {
    folder: await install(client.install, signal),
    databaseUrl: postgres.url,
    gateway: { url, adminKey: ADMIN_KEY },
    vllm,
    limitMs,
    signal,
  };
  const { ran, recorded, compared } = await clientBesideVllm(client, at);
  const played = await toySession(client, at);
  const session = await sessionBesideVllm(client, played, at);
  const { protocols, calls, unfinished, drifted, branched, tokens } = recorded;
  const alone = [
    compared.filter(isAnswered).length,
    calls,
    unfinished,
    drifted,
    branched,
    tokens,
    equalIn(client, compared),
  ];
  const turns = [
    exitOf(played.ran),
    session.compared.length,
    refusedOf(session.compared),
    session.recorded.calls,
    equalIn(client, session.compared),
  ];
  return [
    protocols.join(' '),
    exitOf(ran),
    ...[...alone, ...turns].map(String),
    (ran.seconds + played.ran.seconds).toFixed(0),
  ];
}

/** Returns the number of equal answers, refusals included. The different ones are printed at the end. */
function equalIn({ name }: Client, compared: readonly Comparison[]): number {
  const others = compared.filter(differs);
  differences.push(...others.map((each) => `${name}, ${each.what}: ${firstDifference(each)}`));
  return compared.length - others.length;
}

const refusedOf = (compared: readonly Comparison[]): string =>
  Object.entries(refusedIn(compared))
    .map(([status, times]) => `${times} by ${status}`)
    .join(', ') || '0';

function exitOf({ code, output, timedOut }: RunResult): string {
  if (code !== 0) console.log(output.slice(-1_500));
  return timedOut ? 'timed out' : String(code);
}

function versionOf({ version, install: from }: Client): string {
  if (version !== undefined) return version;
  if (!('own' in from) || from.own === 'node') return 'own' in from ? process.versions.node : '';
  return String(
    (
      JSON.parse(readFileSync(join(REPOSITORY, 'node_modules', from.own, 'package.json'), 'utf8')) as {
        version: unknown;
      }
    ).version,
  );
}

if (values.engine === 'vllm') await withVllm(allBesideVllm, signal, { args: ONE_AT_A_TIME, cacheGiB: 3 });
else await runAll(besideToy);
await postgres.close();
const FIGURES = {
  toy: [
    'calls',
    'unfinished',
    'clean',
    'drifted',
    'branched',
    'untrainable',
    'samples',
    'tokens',
    'trained',
    'faults',
    'tries of a lost reply',
  ],
  vllm: [
    'answered',
    'recorded',
    'unfinished',
    'drifted',
    'branched',
    'tokens',
    'equal to vLLM',
    'exit before the toy',
    'asked of both',
    'refused by vLLM',
    'recorded',
    'equal to vLLM',
  ],
};
const figures = values.engine === 'vllm' ? FIGURES.vllm : FIGURES.toy;
const text = `${[JSON.stringify(provenance(), null, 2), `engine: ${values.engine}`, table(['client', 'version', 'protocols', 'exit', ...figures, 'seconds'], rows), ...(modes.length > 0 ? [table(MODE_HEAD, modes)] : []), ...differences].join('\n\n')}\n`;
console.log(text);
mkdirSync(join(REPOSITORY, 'bench/results'), { recursive: true });
writeFileSync(join(REPOSITORY, `bench/results/clients${values.engine === 'toy' ? '' : `-${values.engine}`}.txt`), text);
if (values.engine === 'toy' && !only) writePages(modeRowsIn(text));

/** Updates the tables of modes on the documentation pages, which come from this benchmark. */
function writePages(found: ReturnType<typeof modeRowsIn>): void {
  const update = (name: string, change: (page: string) => string) => {
    const file = join(REPOSITORY, 'docs/clients', `${name}.md`);
    writeFileSync(file, change(readFileSync(file, 'utf8')));
  };
  for (const { name } of chosen)
    update(name, (page) =>
      withModes(
        page,
        found.filter(({ client }) => client === name),
      ),
    );
  update('README', (page) => withModes(page, found, true));
}
