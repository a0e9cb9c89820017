/**
 * Makes random conversations with tool calls, unicode, special tokens written as text, several replies a request, text completions,
 * branches and edited histories, plain and streamed. Counts records and samples that differ from what the agent saw, or from the engine's input and output.
 * `toy` is a fake engine whose text does not tokenize back to the same ids and which reports its input, `sglang` one of the same model that
 * answers as SGLang does; `vllm` is the real one.
 *
 *   node bench/exact-tokens.ts --engine toy --conversations 100000
 *   node bench/exact-tokens.ts --engine sglang --conversations 20000
 *   node bench/exact-tokens.ts --engine vllm --conversations 2000
 */
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { z } from 'zod';
import { startGateway } from '../gateway/runtimes/node/start-gateway.ts';
import { exactTrial, onSglang, onToy, type Place } from '../tests/support/scenarios/exact-trial.ts';
import { withVllm } from '../tests/support/harness/own-vllm.ts';
import { gatewayBeforeVllm } from '../tests/support/harness/gateway-before-vllm.ts';
import { SglangEngine } from '../tests/support/fakes/sglang/sglang-engine.ts';
import { TokenEngine } from '../tests/support/fakes/token-engine.ts';
import { HALVES } from '../tests/support/fakes/toy-engine.ts';
import { REPOSITORY } from '../core/repository.ts';
import { shutdownSignal } from '../cli/signals.ts';
import { table } from '../cli/show/table.ts';
import { openDatabase } from '../store/database.ts';
import { registerReplicas } from '../store/queries/register-replicas.ts';
import { replicas } from '../store/schema.ts';
import { TestPostgres } from '../tests/support/harness/postgres.ts';
import { provenance } from './deployment.ts';
import { optionsOf } from './options.ts';

const {
  engine: choice,
  conversations: count,
  steps,
  concurrency,
} = optionsOf(import.meta.url, { engine: 'toy', conversations: 2_000, steps: 6, concurrency: 32 });
if (!['toy', 'sglang', 'vllm'].includes(choice))
  throw new Error(`--engine: expected toy, sglang or vllm, found ${choice}`);
const signal = shutdownSignal();
const [ADMIN, SECRET] = ['bench', 'a secret of sixteen characters'];
const sampleCount = z.object({ samples: z.array(z.unknown()) });

const total = { conversations: 0, calls: 0, callingTools: 0, samples: 0, mismatches: 0 };
const faults: string[] = [];

async function converseAt(place: Place, seed: number): Promise<void> {
  const { steps: stepsMade, samples, faults: found } = await exactTrial(place, `exact-${seed}`, { seed, steps });
  total.conversations += 1;
  total.calls += stepsMade.length;
  total.callingTools += stepsMade.filter(({ calls }) => calls.length > 0).length;
  total.samples += sampleCount.parse(samples).samples.length;
  mismatch(found);
}

function mismatch(found: string[]): void {
  if (found.length > 0) total.mismatches += 1;
  for (const fault of found) console.log(fault);
  if (faults.length < 20) faults.push(...found);
}

async function converseAll(place: Place, from: number, to: number): Promise<void> {
  let seed = from;
  const lane = async (): Promise<void> => {
    while (seed < to && !signal.aborted) {
      seed += 1;
      if (seed % Math.ceil(count / 20) === 0) console.log(`${seed} of ${count}, ${total.mismatches} mismatches`);
      await converseAt(place, seed);
    }
  };
  await Promise.all(Array.from({ length: concurrency }, lane));
}

type Gateway = Place['gateway'];
/** Returns how each of an engine's settings is reached, and how it is stopped. */
type Starts = () => Promise<{ url: string; place: (gateway: Gateway) => Place; stop: () => Promise<void> }>;

/** Half of each reply's tokens have the next version. */
const SERVED = { weightVersion: 'run@1', spans: HALVES };

/** An engine that parses tool calls, where streams are made from whole replies, and one that does not. */
const TOYS = [true, false].map((parses): Starts => async () => {
  const engine = Object.assign(await new TokenEngine().start(), SERVED, { parses });
  return { url: engine.url, place: (gateway) => onToy(gateway, engine), stop: () => engine.stop() };
});

/** The same, and each with streams whose events have the whole reply so far or only what is new. */
const SGLANGS = [true, false].flatMap((parses) =>
  [true, false].map((incremental): Starts => async () => {
    const engine = Object.assign(await new SglangEngine().start(), SERVED, { parses, incremental });
    return { url: engine.url, place: (gateway) => onSglang(gateway, engine), stop: () => engine.stop() };
  }),
);

/** Runs an equal share of the conversations with each. */
async function overFakes(all: readonly Starts[]): Promise<void> {
  const postgres = await TestPostgres.create();
  const db = openDatabase(postgres.url);
  try {
    for (const [i, start] of all.entries()) {
      const engine = await start();
      await registerReplicas(db, [engine.url]);
      await db.update(replicas).set({ runId: 'run', weightVersion: 'run@1', inRotation: true });
      const gateway = await startGateway({
        host: '127.0.0.1',
        port: 0,
        engines: [engine.url],
        databaseUrl: postgres.url,
        adminKey: ADMIN,
        secret: SECRET,
      });
      const share = Math.ceil(count / all.length);
      await converseAll(
        { ...engine.place({ url: gateway.url, adminKey: ADMIN }), opening: { run_id: 'run' } },
        i * share,
        Math.min(count, (i + 1) * share),
      );
      await gateway.close();
      await engine.stop();
    }
  } finally {
    await db.$client.end();
    await postgres.close();
  }
}

/** Runs with vLLM, whose parsers take tool calls out of the text. */
async function overVllm(): Promise<void> {
  const postgres = await TestPostgres.create();
  const converseWith = async (url: string) => {
    const place = await gatewayBeforeVllm(url, postgres.url, signal);
    await converseAll(place, 0, count);
    mismatch(place.unmatched());
    await place.close();
  };
  await withVllm(converseWith, signal).finally(() => postgres.close());
}

const start = performance.now();
await (choice === 'vllm' ? overVllm() : overFakes(choice === 'toy' ? TOYS : SGLANGS));
signal.throwIfAborted();
const seconds = (performance.now() - start) / 1000;
const text = table(
  ['engine', 'conversations', 'calls', 'calling tools', 'samples', 'mismatches', 'seconds', 'calls/s'],
  [
    [
      choice,
      ...[total.conversations, total.calls, total.callingTools, total.samples, total.mismatches].map(String),
      seconds.toFixed(0),
      (total.calls / seconds).toFixed(0),
    ],
  ],
);
console.log([text, ...faults].join('\n'));
mkdirSync(join(REPOSITORY, 'bench/results'), { recursive: true });
writeFileSync(
  join(REPOSITORY, `bench/results/exact-tokens-${choice}.txt`),
  `${JSON.stringify(provenance(), null, 2)}\n\n${[text, ...faults].join('\n')}\n`,
);
process.exitCode = total.mismatches > 0 ? 1 : 0;
