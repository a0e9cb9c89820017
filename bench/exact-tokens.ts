/**
 * Random conversations with tool calls, unicode, special tokens written as text, several replies a request, texts that are
 * completed, forks and edited histories, plain and streamed: how many records or samples differ from what the agent saw, or from what the engine was given and gave.
 * `toy` is a fake engine whose text does not tokenise back, and which says what it was given; `vllm` is the real one.
 *
 *   node bench/exact-tokens.ts --engine toy --conversations 100000
 *   node bench/exact-tokens.ts --engine vllm --conversations 2000
 */
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { z } from 'zod';
import { startGateway } from '../gateway/node.ts';
import { UndiciConnection } from '../gateway/node/engine-connection.ts';
import { converse, type Line } from '../gateway/testing/converse.ts';
import { detokenize } from '../gateway/testing/detokenize.ts';
import { withVllm } from '../gateway/testing/own-vllm.ts';
import { recordFaults } from '../gateway/testing/record-faults.ts';
import { TokenEngine } from '../gateway/testing/token-engine.ts';
import { decode as toyDecode } from '../gateway/testing/toy-tokenizer.ts';
import { trialOverHttp } from '../gateway/testing/trial-over-http.ts';
import { REPOSITORY } from '../cli/folders.ts';
import { untilSignalled } from '../cli/signals.ts';
import { table } from '../cli/show/table.ts';
import { TestPostgres } from '../store/testing/postgres.ts';
import { provenance } from './deployment.ts';
import { optionsOf } from './options.ts';

const { engine: choice, conversations: count, steps, concurrency } = optionsOf(import.meta.url, { engine: 'toy', conversations: 2_000, steps: 6, concurrency: 32 });
if (!['toy', 'vllm'].includes(choice)) throw new Error(`--engine: expected toy or vllm, found ${choice}`);
const [ADMIN, SECRET] = ['bench', 'a secret of sixteen characters'];
/** Left to itself, so small a model calls no tool. Its grammar makes such a call untrainable; its ids are what the next turn goes on from. */
const FORCING = { tool_choice: { type: 'function', function: { name: 'ls' } }, max_tokens: 48 };
const sampleCount = z.object({ samples: z.array(z.unknown()) });

/** Where conversations go, and how their ids become text. */
type Place = { gateway: string; adminKey: string; decode: (ids: number[]) => string | Promise<string>; toy?: TokenEngine };
const total = { conversations: 0, calls: 0, callingTools: 0, samples: 0, mismatches: 0 };
const faults: string[] = [];

async function converseAt({ gateway, adminKey, decode, toy }: Place, seed: number): Promise<void> {
  const id = `exact-${seed}`;
  const trial = await trialOverHttp({ url: gateway, adminKey }, id);
  let lines: Line[] = [];
  const more = () => (toy ? { cue: { lines, log: id } } : { max_tokens: 8, temperature: 1 });
  const chat = (body: Record<string, unknown>) => trial.chat({ ...more(), ...body });
  const complete = (body: Record<string, unknown>) => trial.complete({ ...more(), ...body });
  const said = await converse(seed, { chat, complete, say: (next) => (lines = next), steps, ...(toy ? {} : { forcing: FORCING }) });
  const samples = await trial.samples();
  const found = await recordFaults({ steps: said, session: await trial.session(), samples, decode, generated: toy?.logs.get(id) });
  toy?.logs.delete(id);
  total.conversations += 1;
  total.calls += said.length;
  total.callingTools += said.filter(({ tools }) => tools).length;
  total.samples += sampleCount.parse(samples).samples.length;
  if (found.length > 0) total.mismatches += 1;
  for (const fault of found) console.log(`seed ${seed}: ${fault}`);
  if (faults.length < 20) faults.push(...found.map((fault) => `seed ${seed}: ${fault}`));
}

async function converseAll(place: Place, from: number, to: number): Promise<void> {
  let seed = from;
  const lane = async (): Promise<void> => {
    while (seed < to) {
      seed += 1;
      if (seed % Math.ceil(count / 20) === 0) console.log(`${seed} of ${count}, ${total.mismatches} mismatches`);
      await converseAt(place, seed);
    }
  };
  await Promise.all(Array.from({ length: concurrency }, lane));
}

/** Half of them with an engine that parses tool calls, where streams are made of whole replies; half with one that does not. */
async function onToy(): Promise<void> {
  const postgres = await TestPostgres.create();
  try {
    for (const parses of [true, false]) {
      const engine = Object.assign(await new TokenEngine().start(), { parses });
      const gateway = await startGateway({ host: '127.0.0.1', port: 0, engines: [engine.url], databaseUrl: postgres.url, adminKey: ADMIN, secret: SECRET });
      const half = Math.ceil(count / 2);
      await converseAll({ gateway: gateway.url, adminKey: ADMIN, decode: toyDecode, toy: engine }, parses ? 0 : half, parses ? half : count);
      await gateway.close();
      await engine.stop();
    }
  } finally {
    await postgres.close();
  }
}

/** It takes tool calls out of the text. */
async function onVllm(): Promise<void> {
  const signal = untilSignalled();
  const postgres = await TestPostgres.create();
  const converseWith = async (url: string) => {
    const engine = new UndiciConnection(url);
    const gateway = await startGateway({ host: '127.0.0.1', port: 0, engines: [url], databaseUrl: postgres.url, adminKey: ADMIN, secret: SECRET, settings: { holdMs: 60_000 } });
    const decode = (tokens: number[]) => detokenize(engine, tokens, signal);
    await converseAll({ gateway: gateway.url, adminKey: ADMIN, decode }, 0, count);
    await gateway.close();
    await engine.close();
  };
  await withVllm(converseWith, signal).finally(() => postgres.close());
}

const start = performance.now();
await (choice === 'vllm' ? onVllm() : onToy());
const seconds = (performance.now() - start) / 1000;
const text = table(
  ['engine', 'conversations', 'calls', 'calling tools', 'samples', 'mismatches', 'seconds', 'calls/s'],
  [[choice, ...[total.conversations, total.calls, total.callingTools, total.samples, total.mismatches].map(String), seconds.toFixed(0), (total.calls / seconds).toFixed(0)]],
);
console.log([text, ...faults].join('\n'));
mkdirSync(join(REPOSITORY, 'bench/results'), { recursive: true });
writeFileSync(join(REPOSITORY, `bench/results/exact-tokens-${choice}.txt`), `${JSON.stringify(provenance(), null, 2)}\n\n${[text, ...faults].join('\n')}\n`);
process.exitCode = total.mismatches > 0 ? 1 : 0;
