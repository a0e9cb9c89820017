import { existsSync } from 'node:fs';
import { isAbsolute } from 'node:path';
import { TrialgateError } from '../../core/errors.ts';
import type { RunConfig } from '../../core/run-config/run-config.ts';
import { capture, lastLine } from '../checks/capture.ts';
import type { Deployment } from '../config/schema.ts';
import { INSTALLS } from '../folders.ts';
import { onlyGpus } from '../supervisor/gpus.ts';
import { livingState } from '../supervisor/state.ts';
import { cachedModel } from './hub-cache.ts';

type Trained = Pick<
  RunConfig,
  | 'model'
  | 'trainer_server'
  | 'lora_rank'
  | 'lora_alpha'
  | 'target_modules'
  | 'enable_router_replay'
  | 'seed'
  | 'max_prompt_length'
  | 'max_response_length'
>;
type Where = Pick<Deployment, 'home' | 'trainer_keys'>;

/** The exit code of `gpu-workers/trialgate_gpu/check_trainer.py` for a run that cannot be trained. Any other failure is no reason against a run. */
const REFUSED = 3;
/** Its exit code for a run that can be trained, with a warning. */
const WARNED = 4;

/**
 * Checks before anything is started that a run's trainer can train its model. Our own trainer must support the model, which must have the layers of
 * `target_modules`, and have memory for it; only the model's configuration is read. A trainer server must answer, take our key and serve the model.
 * What is on other machines (the model, the trainer) is checked there, when the run starts.
 * @returns a warning about a step that may need more memory than there is, or null
 * @throws TrialgateError `bad_input` with the trainer's reason
 */
export async function requireTrainable(
  config: Trained,
  deployment: Where,
  signal: AbortSignal,
): Promise<string | null> {
  if (!existsSync(INSTALLS.python)) return null;
  const here = livingState(deployment.home);
  const hasGpuWorker = here?.components.some(({ name }) => name === 'gpu-worker') ?? false;
  const { model, trainer_server, lora_rank, lora_alpha, target_modules, seed } = config;
  const { max_prompt_length, max_response_length, enable_router_replay } = config;
  const folder = isAbsolute(model) ? model : cachedModel(model, deployment.home);
  if (trainer_server === null ? folder === null || !existsSync(folder) : !hasGpuWorker) return null;
  const ranks = hasGpuWorker ? here?.ranks : null;
  const adapter = { lora_rank, lora_alpha, target_modules, seed };
  const lengths = { max_prompt_length, max_response_length };
  const settings = JSON.stringify({ trainer_server, ...adapter, enable_router_replay, ...lengths });
  const command = [
    INSTALLS.python,
    '-m',
    'trialgate_gpu.check_trainer',
    trainer_server ? model : (folder ?? model),
    settings,
  ];
  if (ranks) command.push('--device', ranks.device, '--ranks', String(ranks.count));
  if (ranks?.offload) command.push('--cpu-offload');
  if (ranks?.recompute) command.push('--activation-checkpointing');
  if (ranks?.packTokens) command.push('--pack-tokens', String(ranks.packTokens));
  const { code, stdout } = await capture(command, signal, {
    PYTHONPATH: INSTALLS.gpuWorkers,
    // The deployment may have been started with other settings than this verb has.
    TRIALGATE_TRAINER_KEYS: JSON.stringify(here?.settings?.['trainer_keys'] ?? deployment.trainer_keys),
    ...(ranks ? { TRIALGATE_DTYPE: ranks.dtype, ...onlyGpus(ranks.gpus) } : {}),
  });
  if (code === REFUSED)
    throw new TrialgateError(
      'bad_input',
      `${lastLine(stdout)} (--no-check leaves it to the trainer when the run starts)`,
    );
  return code === WARNED ? lastLine(stdout) : null;
}
