import { existsSync } from 'node:fs';
import { isAbsolute } from 'node:path';
import { z } from 'zod';
import { TrialgateError } from '../../core/errors.ts';
import { resolveModel } from '../../activities/run/resolve-paths.ts';
import { capture, lastLine } from '../checks/capture.ts';
import { INSTALLS } from '../folders.ts';
import { cachedModel } from './hub-cache.ts';
import { requireModel } from './require-model.ts';

/** The exit code of `gpu-workers/trialgate_gpu/examine_model.py` for a model without a configuration. */
const MISSING = 3;

/** Its exit code when the hub cannot be asked. */
const UNREACHABLE = 4;

/** What `examine_model.py` finds; its `Finding` says what each key means. */
const findingSchema = z.object({
  model: z.string(),
  reason: z.string().nullable(),
  family: z.string().nullable(),
  architecture: z.string().nullable(),
  kept: z.array(z.string()).nullable(),
  parameters: z.int().nullable(),
  attention: z.record(z.string(), z.int()).nullable(),
  window: z.int().nullable(),
  experts: z.int().nullable(),
  replays: z.boolean().nullable(),
  logit_scale: z.number().nullable(),
  logit_cap: z.number().nullable(),
  tied_head: z.boolean().nullable(),
  lora: z.array(z.string()).nullable(),
  vllm: z.boolean().nullable(),
  deviations: z
    .object({
      packed_alone: z.number().nullable(),
      alone_eager: z.number().nullable(),
      gradient: z.number().nullable(),
      ranks_gradient: z.number().nullable(),
      lora_gradient: z.number().nullable(),
      no_ranks: z.string().nullable(),
    })
    .nullable(),
  not_run: z.string().nullable(),
});
export type Finding = z.infer<typeof findingSchema>;
type Deviations = NonNullable<Finding['deviations']>;

/**
 * Asks the trainer whether it can train a model. Its weights are not read; of a model on a hub only the configuration is downloaded.
 * @param model a folder, an installed model or a name on Hugging Face
 * @param run compare a small random model of the same configuration with plain PyTorch
 * @throws TrialgateError `bad_input` when there is no such model, `missing_prerequisite` when the trainer is not installed or the hub cannot be asked
 */
export async function checkModel(
  model: string,
  { home, run }: { home: string; run: boolean },
  signal: AbortSignal,
): Promise<Finding> {
  if (!existsSync(INSTALLS.python))
    throw new TrialgateError(
      'missing_prerequisite',
      'the trainer is not installed, so it cannot be asked about a model: run `npx trialgate install` first',
    );
  const resolved = resolveModel(model, process.cwd());
  const isFolder = isAbsolute(resolved) && existsSync(resolved);
  if (!isFolder) await requireModel(resolved, { home }, signal);
  const place = isFolder ? resolved : (cachedModel(resolved, home) ?? resolved);
  const command = [INSTALLS.python, '-m', 'trialgate_gpu.examine_model', place, '--name', model];
  if (!run) command.push('--no-run');
  const { code, stdout, stderr } = await capture(command, signal, { PYTHONPATH: INSTALLS.gpuWorkers });
  if (code === MISSING) throw new TrialgateError('bad_input', lastLine(stdout));
  if (code === UNREACHABLE) throw new TrialgateError('missing_prerequisite', lastLine(stdout));
  if (code !== 0) throw new Error(`the check of ${model} ended with code ${code}: ${lastLine(stderr)}`);
  return findingSchema.parse(JSON.parse(lastLine(stdout)));
}

/** Returns what `check-model` prints first of a model that nothing speaks against. */
export function verdict({ model, deviations, not_run }: Pick<Finding, 'model' | 'deviations' | 'not_run'>): string {
  if (deviations !== null) return `${model} can be trained`;
  const tried = not_run === null ? 'no small model was tried' : 'a small model was tried and did not run';
  return `${model}: nothing in its configuration speaks against training it; ${tried}`;
}

/** Returns the lines that `check-model` prints about what was found. */
export function describe(found: Finding): string[] {
  const { family, architecture, kept, parameters, attention, window, experts, replays, deviations } = found;
  if (family === null || parameters === null || attention === null) return [];
  const layers = Object.entries(attention).map(([kind, count]) => `${count} layers of ${kind}`);
  const rows: [string, string][] = [
    [
      'family',
      `${family} (${architecture ?? 'unknown'}), ${parameters.toLocaleString('en-US')} parameters${kept?.length ? ' in its text model' : ''}`,
    ],
    ...(kept === null || kept.length === 0 ? [] : [['multimodal', multimodal(kept)] satisfies [string, string]]),
    ['attention', `${layers.join(', ')}${window === null ? '' : `, with a window of ${window} tokens`}`],
    ['experts', experts === null ? 'none' : `${experts} in a layer, ${replays ? 'with' : 'without'} router replay`],
    ['head', head(found)],
    [
      'LoRA',
      found.lora === null ? 'none of its layers can have an adapter' : `target_modules: ${found.lora.join(', ')}`,
    ],
    ...(deviations === null ? [] : [['ranks', ranks(deviations)] satisfies [string, string]]),
    ['vLLM', vllm(found.vllm)],
    ['small model', deviations === null ? (found.not_run ?? 'not run') : small(deviations)],
  ];
  return rows.map(([name, value]) => `  ${name.padEnd(12)} ${value}`);
}

function head({ logit_scale, logit_cap, tied_head }: Finding): string {
  const parts = [tied_head ? 'tied to the embedding' : 'its own weights'];
  if (logit_scale !== null && logit_scale !== 1) parts.push(`logits times ${logit_scale}`);
  if (logit_cap !== null) parts.push(`logits capped at ${logit_cap}`);
  return parts.join(', ');
}

function multimodal(kept: string[]): string {
  return `its text model is trained, on calls without images and the like; ${kept.join(', ')}: kept as in its files`;
}

function vllm(has: boolean | null): string {
  if (has === null) return 'not installed here';
  return has
    ? 'the installed vLLM has the architecture'
    : 'the installed vLLM has no code of its own for the architecture, and may run it with that of transformers';
}

/** A number that is not finite comes as null. */
function short(value: number | null): string {
  if (value === null) return 'a number that is not finite';
  return value === 0 ? '0' : value.toExponential(1);
}

/** The largest deviation of a gradient, relative to its norm, that is rounding. */
const ROUNDING = 1e-3;

function ranks({ ranks_gradient, no_ranks }: Deviations): string {
  if (no_ranks !== null) return no_ranks;
  if (ranks_gradient === null || ranks_gradient > ROUNDING)
    return `one alone: its gradient differs by ${short(ranks_gradient)} when it is divided`;
  return `FSDP2 divides it: checked with one rank, whose gradient differs by ${short(ranks_gradient)} of the norm`;
}

function small({ packed_alone, alone_eager, gradient, lora_gradient }: Deviations): string {
  const lora = lora_gradient === null ? '' : `, of an adapter by ${short(lora_gradient)}`;
  return `log-probabilities in packs differ from those alone by ${short(packed_alone)} nats, and these from transformers' by ${short(alone_eager)}; its gradient differs from autograd's by ${short(gradient)} of the norm${lora}`;
}
