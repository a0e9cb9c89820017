import { readFile } from 'node:fs/promises';
import { basename, isAbsolute, join } from 'node:path';
import { z } from 'zod';
import { getFromEngine, type RelayRoute } from '../../activities/pool/get-from-engine.ts';
import { isForRuns, NOT_IN_RUNS } from '../../core/engine-url.ts';
import { TrialgateError } from '../../core/errors.ts';
import { parseJson } from '../../core/json.ts';
import type { RunConfig } from '../../core/run-config/run-config.ts';
import type { Database } from '../../store/database.ts';
import { restart } from './restart-engine.ts';
import { enginesOf } from './run-notices.ts';

const ASK_MS = 10_000;
/** The values that vLLM takes for `--max-lora-rank` (vllm/config/lora.py). */
const VLLM_RANKS = [1, 8, 16, 32, 64, 128, 256, 320, 512];
/** The number of tokens of its context that SGLang gives to no request. */
const KEPT_BY_SGLANG = 7;

/** An entry of `/v1/models`. vLLM's `root` is the model that it was started with, SGLang's the one whose weights it has. */
const models = z.object({
  data: z.array(z.object({ id: z.string(), root: z.string().nullish(), max_model_len: z.number().nullish() })).min(1),
});

type Served = z.output<typeof models>['data'][number];

const atMost = z.number().nullish().default(null);
/** An engine reports these LoRA limits at `/server_info`: the largest rank, and the number of adapters that it computes with at once. */
const loraOf = z.union([
  z
    .object({
      vllm_config: z.object({ lora_config: z.object({ max_lora_rank: atMost, max_loras: atMost }).nullish() }),
    })
    .transform(({ vllm_config: { lora_config } }) => ({
      isEnabled: Boolean(lora_config),
      ranks: lora_config?.max_lora_rank ?? null,
      adapters: lora_config?.max_loras ?? null,
    })),
  z
    .object({ enable_lora: z.boolean().nullable(), max_lora_rank: atMost, max_loras_per_batch: atMost })
    .transform(({ enable_lora, max_lora_rank, max_loras_per_batch }) => ({
      isEnabled: enable_lora === true,
      ranks: max_lora_rank,
      adapters: max_loras_per_batch,
    })),
]);

/** The settings of a model's `config.json` that decide whether the weights of one fit into another. */
const shape = z.object({
  architectures: z.array(z.string()).nullish(),
  hidden_size: z.number().nullish(),
  num_hidden_layers: z.number().nullish(),
  vocab_size: z.number().nullish(),
});

type Checked = Pick<
  RunConfig,
  'engines' | 'model' | 'max_prompt_length' | 'max_response_length' | 'lora_rank' | 'max_staleness'
>;

/**
 * Checks that each engine answers, serves a model of the run's architecture unless `anyModel`, and takes calls of the run's lengths.
 * @throws TrialgateError `bad_input` or `missing_prerequisite` with the engine and what to do
 */
export async function checkEngines(
  engines: readonly string[],
  config: Checked,
  relay: RelayRoute,
  { anyModel = false } = {},
): Promise<void> {
  if (engines.length === 0)
    throw new TrialgateError(
      'missing_prerequisite',
      'no engine is registered: start the deployment with `npx trialgate up`, or name engines in the run file',
    );
  requireForRuns(engines);
  for (const engine of engines) await checkEngine(engine, config, relay, anyModel);
}

/** @throws TrialgateError `bad_input` when an engine is of a kind that no run can use */
export function requireForRuns(engines: readonly string[]): void {
  for (const engine of engines)
    if (!isForRuns(engine)) throw new TrialgateError('bad_input', `${engine} ${NOT_IN_RUNS}`);
}

export const NO_RELAY: RelayRoute = { gatewayUrls: [], secret: '' };

/**
 * Checks the kind of a run's engines, and the model of those that answer. The run waits for the others.
 * @param relay the way to engines behind relay workers
 * @throws TrialgateError `bad_input` when one serves a model of another architecture, or is of a kind that no run can use
 */
export async function requireSameModel(db: Database, config: Checked, relay: RelayRoute): Promise<void> {
  const engines = await enginesOf(db, config);
  requireForRuns(engines);
  for (const engine of engines) {
    const served = await servedBy(engine, relay).catch((error: unknown) => {
      if (error instanceof TrialgateError && error.code === 'missing_prerequisite') return null;
      throw error;
    });
    if (!served) continue;
    await requireModel(engine, served, config);
    await requireLora(engine, config, relay);
  }
}

async function checkEngine(engine: string, config: Checked, relay: RelayRoute, anyModel: boolean): Promise<void> {
  const served = await servedBy(engine, relay);
  const wanted = config.max_prompt_length + config.max_response_length;
  if (served.max_model_len && wanted > served.max_model_len)
    throw new TrialgateError(
      'bad_input',
      `max_prompt_length ${config.max_prompt_length} and max_response_length ${config.max_response_length} are ${wanted} tokens together, and the engine ` +
        `${engine} takes ${served.max_model_len}: lower them, or ${restart(config, { vllm: `--max-model-len ${wanted}`, sglang: `--context-length ${wanted + KEPT_BY_SGLANG}` })}`,
    );
  if (anyModel) return;
  await requireModel(engine, served, config);
  await requireLora(engine, config, relay);
}

/** @throws TrialgateError `bad_input` when the engine cannot load the adapters of the run */
async function requireLora(engine: string, config: Checked, relay: RelayRoute): Promise<void> {
  if (config.lora_rank === 0) return;
  const asked = await getFromEngine(engine, '/server_info?config_format=json', ASK_MS, relay).catch(() => null);
  // An engine without this route is refused, with what it lacks, when the run publishes to it.
  const found = asked?.status === 200 ? loraOf.safeParse(parseJson(asked.text)).data : undefined;
  if (found === undefined) return;
  const needed = { ranks: config.lora_rank, adapters: config.max_staleness + 2 };
  const lacks = whatLacks(found, needed);
  if (lacks === null) return;
  const { ranks, adapters } = needed;
  const vllm = `--enable-lora --max-lora-rank ${vllmRankFor(ranks)} --max-loras ${adapters}`;
  throw new TrialgateError(
    'bad_input',
    `the engine ${engine} ${lacks}, and the run trains a LoRA adapter: ${restart(config, {
      vllm: config.engines.length > 0 ? `VLLM_ALLOW_RUNTIME_LORA_UPDATING=1 and ${vllm}` : `--engine-args '${vllm}'`,
      sglang: `--enable-lora --max-lora-rank ${ranks} --max-loras-per-batch ${adapters} --lora-target-modules all`,
    })}`,
  );
}

/** Returns the smallest `--max-lora-rank` that vLLM knows and that takes adapters of this rank. */
const vllmRankFor = (rank: number): number => VLLM_RANKS.find((each) => each >= rank) ?? rank;

/** Says what an engine lacks for a run's adapters; null when it lacks nothing. */
function whatLacks(
  { isEnabled, ranks, adapters }: z.output<typeof loraOf>,
  needed: { ranks: number; adapters: number },
): string | null {
  if (!isEnabled) return 'was started without LoRA';
  if (ranks !== null && ranks < needed.ranks) return `takes adapters of rank ${ranks} at most, not ${needed.ranks}`;
  if (adapters !== null && adapters < needed.adapters)
    return `computes with ${adapters} adapters at once, and \`max_staleness\` needs ${needed.adapters}`;
  return null;
}

async function servedBy(engine: string, relay: RelayRoute): Promise<Served> {
  const found = models.safeParse(await getModels(engine, relay));
  const [served] = found.data?.data ?? [];
  if (served) return served;
  throw new TrialgateError(
    'missing_prerequisite',
    `the engine ${engine} does not list its models at /v1/models: is it vLLM or SGLang?`,
  );
}

async function requireModel(engine: string, served: Served, config: Checked): Promise<void> {
  if (served.root && !(await isSameModel(served.root, config.model)))
    throw new TrialgateError(
      'bad_input',
      `the engine ${engine} runs ${basename(served.root)}, the run file names ${basename(config.model)}: name that one, or ${switchModel(config)}`,
    );
}

/** Says how to make an engine run another model. */
const switchModel = (config: Checked): string =>
  config.engines.length > 0
    ? restart(config, { vllm: `--model ${config.model}`, sglang: `--model-path ${config.model}` })
    : `switch the deployment's engine: \`npx trialgate engine use ${config.model}\``;

/** True unless it is certain that the weights of one model do not fit into the other. */
async function isSameModel(served: string, wanted: string): Promise<boolean> {
  if (served === wanted) return true;
  const [ours, theirs] = [await shapeOf(wanted), await shapeOf(served)];
  if (ours !== null && theirs !== null) return JSON.stringify(ours) === JSON.stringify(theirs);
  // Names on a hub can be compared. A folder of another machine says nothing.
  return isAbsolute(served) || isAbsolute(wanted);
}

async function shapeOf(model: string): Promise<z.output<typeof shape> | null> {
  if (!isAbsolute(model)) return null;
  const text = await readFile(join(model, 'config.json'), 'utf8').catch(() => null);
  return text === null ? null : (shape.safeParse(JSON.parse(text)).data ?? null);
}

async function getModels(engine: string, relay: RelayRoute): Promise<unknown> {
  const { status, text } = await getFromEngine(engine, '/v1/models', ASK_MS, relay).catch((cause: unknown) => {
    const why = cause instanceof Error ? cause.message || cause.name : String(cause);
    throw new TrialgateError(
      'missing_prerequisite',
      `the engine ${engine} cannot be reached: ${why}. Start it, or name another`,
      { cause },
    );
  });
  if (status !== 200)
    throw new TrialgateError(
      'missing_prerequisite',
      `the engine ${engine} answered ${status} at /v1/models: ${text.slice(0, 200)}`,
    );
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}
