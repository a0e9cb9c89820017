import { readFile } from 'node:fs/promises';
import { basename, isAbsolute, join } from 'node:path';
import { z } from 'zod';
import { getFromEngine, type RelayRoute } from '../../activities/pool/get-from-engine.ts';
import { isForRuns, NOT_IN_RUNS } from '../../core/engine-url.ts';
import { TrialgateError } from '../../core/errors.ts';
import { parseJson } from '../../core/json.ts';
import { restart } from '../../core/restart-engine.ts';
import type { RunConfig } from '../../core/run-config/run-config.ts';
import type { Database } from '../../store/database.ts';
import { cachedModel } from '../models/hub-cache.ts';
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
const floatHead = z.object({ head_dtype: z.literal('float32') });
/**
 * What an engine reports of its start at `/server_info`: its LoRA limits, which are the largest rank and the number of adapters that it
 * computes with at once; the dtype of its output head; and by what it receives weights, null if it loads them from disk.
 */
const startedWith = z.union([
  z
    .object({
      vllm_config: z.object({
        lora_config: z.object({ max_lora_rank: atMost, max_loras: atMost }).nullish(),
        model_config: z.object({ hf_overrides: z.unknown().optional() }).nullish(),
        weight_transfer_config: z.object({ backend: z.string().nullish() }).nullish(),
      }),
    })
    .transform(({ vllm_config: { lora_config, model_config, weight_transfer_config } }) => ({
      name: 'vLLM' as const,
      lora: {
        isEnabled: Boolean(lora_config),
        ranks: lora_config?.max_lora_rank ?? null,
        adapters: lora_config?.max_loras ?? null,
      },
      head: floatHead.safeParse(model_config?.hf_overrides).success ? ('float32' as const) : ('model' as const),
      receives: weight_transfer_config?.backend ?? null,
    })),
  z
    .object({
      enable_lora: z.boolean().nullable(),
      max_lora_rank: atMost,
      max_loras_per_batch: atMost,
      enable_fp32_lm_head: z.boolean().nullish(),
    })
    .transform(({ enable_lora, max_lora_rank, max_loras_per_batch, enable_fp32_lm_head }) => ({
      name: 'SGLang' as const,
      lora: { isEnabled: enable_lora === true, ranks: max_lora_rank, adapters: max_loras_per_batch },
      head: enable_fp32_lm_head ? ('float32' as const) : ('model' as const),
      receives: null,
    })),
]);
type Start = z.output<typeof startedWith>;

const sizes = z.object({
  hidden_size: z.number().nullish(),
  num_hidden_layers: z.number().nullish(),
  vocab_size: z.number().nullish(),
});
/**
 * The settings of a model's `config.json` that decide whether the weights of one fit into another. A multimodal model has the sizes in the
 * configuration of its text model.
 */
const shape = sizes
  .extend({ architectures: z.array(z.string()).nullish(), text_config: sizes.nullish().catch(null) })
  .transform(({ architectures, text_config: text, ...top }) => ({
    architectures,
    hidden_size: top.hidden_size ?? text?.hidden_size,
    num_hidden_layers: top.num_hidden_layers ?? text?.num_hidden_layers,
    vocab_size: top.vocab_size ?? text?.vocab_size,
  }));

type Checked = Pick<
  RunConfig,
  | 'engines'
  | 'model'
  | 'max_prompt_length'
  | 'max_response_length'
  | 'lora_rank'
  | 'max_staleness'
  | 'head_dtype'
  | 'weight_broadcast'
>;

/**
 * Checks that each engine answers, serves a model of the run's architecture unless `anyModel`, and takes calls of the run's lengths.
 * @throws TrialgateError `bad_input` or `missing_prerequisite` with the engine and what to do
 */
export async function checkEngines(
  engines: readonly string[],
  config: Checked,
  relay: RelayRoute,
  { anyModel = false, home }: { anyModel?: boolean; home?: string } = {},
): Promise<void> {
  if (engines.length === 0)
    throw new TrialgateError(
      'missing_prerequisite',
      'no engine is registered: start the deployment with `npx trialgate up`, or name engines in the run file',
    );
  requireForRuns(engines);
  for (const engine of engines) await checkEngine(engine, config, relay, { anyModel, home });
}

/** @throws TrialgateError `bad_input` when a run needs more replicas than it has engines: it would go on with fewer than it names */
export function requireReplicas(
  engines: readonly string[],
  { min_replicas: needed }: Pick<RunConfig, 'min_replicas'>,
): void {
  if (needed === null || needed <= engines.length) return;
  const have = `${engines.length} ${engines.length === 1 ? 'engine' : 'engines'}`;
  throw new TrialgateError(
    'bad_input',
    `min_replicas: ${needed} replicas must confirm a publication, and the run has ${have}: lower it, or add engines first`,
  );
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
    await requireServed(engine, served, config);
    await requireStart(engine, config, relay);
  }
}

async function checkEngine(
  engine: string,
  config: Checked,
  relay: RelayRoute,
  { anyModel, home }: { anyModel: boolean; home: string | undefined },
): Promise<void> {
  const served = await servedBy(engine, relay);
  const wanted = config.max_prompt_length + config.max_response_length;
  if (served.max_model_len && wanted > served.max_model_len)
    throw new TrialgateError(
      'bad_input',
      `max_prompt_length ${config.max_prompt_length} and max_response_length ${config.max_response_length} are ${wanted} tokens together, and the engine ` +
        `${engine} takes ${served.max_model_len}: lower them, or ${restart(config, { vllm: `--max-model-len ${wanted}`, sglang: `--context-length ${wanted + KEPT_BY_SGLANG}` })}`,
    );
  if (anyModel) return;
  await requireServed(engine, served, config, home);
  await requireStart(engine, config, relay);
}

/** @throws TrialgateError `bad_input` when the engine was not started as the run needs it, which a publication would refuse */
async function requireStart(engine: string, config: Checked, relay: RelayRoute): Promise<void> {
  const asked = await getFromEngine(engine, '/server_info?config_format=json', ASK_MS, relay).catch(() => null);
  // An engine without this route is refused, with what it lacks, when the run publishes to it.
  const start = asked?.status === 200 ? startedWith.safeParse(parseJson(asked.text)).data : undefined;
  if (start === undefined) return;
  requireHead(engine, config, start);
  requireTransfer(engine, config, start);
  requireLora(engine, config, start);
}

/** If only one side computes in float32, log-probabilities differ more than if neither does. */
function requireHead(engine: string, config: Checked, { head }: Start): void {
  if (head === config.head_dtype) return;
  const what = `the engine ${engine} computes its output head as \`head_dtype: ${head}\`, and the run as ${config.head_dtype}`;
  const start = config.head_dtype === 'float32' ? 'with' : 'without';
  const how =
    config.engines.length > 0
      ? `start vLLM ${start} --hf-overrides '{"head_dtype": "float32"}', or SGLang ${start} --enable-fp32-lm-head`
      : `start the deployment with it: \`npx trialgate down\`, then \`npx trialgate up --head-dtype ${config.head_dtype}\``;
  throw new TrialgateError('bad_input', `${what}: set \`head_dtype: ${head}\` in the run file, or ${how}`);
}

function requireTransfer(engine: string, { weight_broadcast: { type } }: Checked, { name, receives }: Start): void {
  if ((type !== 'gloo' && type !== 'nccl') || receives === type) return;
  const why =
    name === 'SGLang'
      ? 'is SGLang, which loads weights from disk'
      : `was started to ${receives === null ? 'load weights from disk' : `receive weights by ${receives}`}`;
  const extension = type === 'gloo' ? ' --worker-extension-cls trialgate_gpu.vllm_extension.TrialgateWorker' : '';
  throw new TrialgateError(
    'bad_input',
    `the engine ${engine} ${why}, and the run has \`weight_broadcast.type: ${type}\`: leave that out, or start vLLM with --weight-transfer-config '{"backend": "${type}"}'${extension}`,
  );
}

function requireLora(engine: string, config: Checked, start: Start): void {
  if (config.lora_rank === 0) return;
  const needed = { ranks: config.lora_rank, adapters: config.max_staleness + 2 };
  const lacks = whatLacks(start.lora, needed);
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
  { isEnabled, ranks, adapters }: Start['lora'],
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

async function requireServed(engine: string, served: Served, config: Checked, home?: string): Promise<void> {
  if (!served.root || (await isSameModel(engine, served.root, config.model, home))) return;
  const full = [served.root, config.model];
  const short = full.map((name) => basename(name));
  const [theirs, ours] = short[0] === short[1] ? full : short;
  throw new TrialgateError(
    'bad_input',
    `the engine ${engine} runs ${theirs}, the run file names ${ours}: name that one, or ${switchModel(config)}`,
  );
}

/** Says how to make an engine run another model. */
const switchModel = (config: Checked): string =>
  config.engines.length > 0
    ? restart(config, { vllm: `--model ${config.model}`, sglang: `--model-path ${config.model}` })
    : `switch the deployment's engine: \`npx trialgate engine use ${config.model}\``;

/**
 * True when the weights of one model fit into the other, as far as that can be known. A name on the hub is compared by its download in the
 * cache of `home`. What is uncertain is no refusal, except for the deployment's own engine: it runs here, and so does what the run names.
 */
async function isSameModel(engine: string, served: string, wanted: string, home?: string): Promise<boolean> {
  if (served === wanted) return true;
  const [ours, theirs] = [await shapeOf(wanted, home), await shapeOf(served, home)];
  if (ours !== null && theirs !== null) return JSON.stringify(ours) === JSON.stringify(theirs);
  // Names on a hub can be compared. A folder of another machine says nothing.
  if (!isAbsolute(served) && !isAbsolute(wanted)) return false;
  return !engine.startsWith('unix:') || home === undefined || basename(served) === basename(wanted);
}

async function shapeOf(model: string, home?: string): Promise<z.output<typeof shape> | null> {
  const folder = isAbsolute(model) ? model : home === undefined ? null : cachedModel(model, home);
  if (folder === null) return null;
  const text = await readFile(join(folder, 'config.json'), 'utf8').catch(() => null);
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
