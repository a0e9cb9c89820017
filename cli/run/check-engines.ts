import { readFile } from 'node:fs/promises';
import { basename, isAbsolute, join } from 'node:path';
import { z } from 'zod';
import { getFromEngine } from '../../activities/pool/get-from-engine.ts';
import { TrialgateError } from '../../core/errors.ts';
import type { RunConfig } from '../../core/run-config/run-config.ts';

const ASK_MS = 10_000;

/** An entry of vLLM's `/v1/models`: `root` is the model that it was started with. */
const models = z.object({
  data: z.array(z.object({ id: z.string(), root: z.string().nullish(), max_model_len: z.number().nullish() })).min(1),
});

/** The settings of a model's `config.json` that decide whether the weights of one fit into another. */
const shape = z.object({
  architectures: z.array(z.string()).nullish(),
  hidden_size: z.number().nullish(),
  num_hidden_layers: z.number().nullish(),
  vocab_size: z.number().nullish(),
});

type Checked = Pick<RunConfig, 'engines' | 'model' | 'max_prompt_length' | 'max_response_length'>;

/**
 * Checks that each engine answers, serves a model of the run's architecture unless `anyModel`, and takes calls of the run's lengths.
 * @throws TrialgateError `bad_input` or `missing_prerequisite` with the engine and what to do
 */
export async function checkEngines(
  engines: readonly string[],
  config: Checked,
  { anyModel = false } = {},
): Promise<void> {
  if (engines.length === 0)
    throw new TrialgateError(
      'missing_prerequisite',
      'no engine is registered: start the deployment with `npx trialgate up`, or name engines in the run file',
    );
  for (const engine of engines) await checkEngine(engine, config, anyModel);
}

async function checkEngine(engine: string, config: Checked, anyModel: boolean): Promise<void> {
  const found = models.safeParse(await getModels(engine));
  const [served] = found.data?.data ?? [];
  if (!served)
    throw new TrialgateError(
      'missing_prerequisite',
      `the engine ${engine} does not list its models at /v1/models: is it vLLM?`,
    );
  const wanted = config.max_prompt_length + config.max_response_length;
  if (served.max_model_len && wanted > served.max_model_len)
    throw new TrialgateError(
      'bad_input',
      `max_prompt_length ${config.max_prompt_length} and max_response_length ${config.max_response_length} are ${wanted} tokens together, and the engine ` +
        `${engine} takes ${served.max_model_len}: lower them, or ${restart(config, `--max-model-len ${wanted}`)}`,
    );
  if (!anyModel && served.root && !(await isSameModel(served.root, config.model)))
    throw new TrialgateError(
      'bad_input',
      `the engine ${engine} runs ${basename(served.root)}, the run file names ${basename(config.model)}: name that one, or ${switchModel(config)}`,
    );
}

/** Says how to start an engine with another option. The deployment starts only its own. */
const restart = ({ engines }: Checked, option: string): string =>
  engines.length > 0
    ? `start vLLM with ${option}`
    : `start the deployment with it: \`npx trialgate down\`, then \`npx trialgate up ${option}\``;

/** Says how to make an engine run another model. */
const switchModel = (config: Checked): string =>
  config.engines.length > 0
    ? restart(config, `--model ${config.model}`)
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

async function getModels(engine: string): Promise<unknown> {
  const { status, text } = await getFromEngine(engine, '/v1/models', ASK_MS).catch((cause: unknown) => {
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
