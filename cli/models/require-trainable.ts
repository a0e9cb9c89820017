import { existsSync } from 'node:fs';
import { isAbsolute } from 'node:path';
import { TrialgateError } from '../../core/errors.ts';
import type { RunConfig } from '../../core/run-config/run-config.ts';
import { capture, lastLine } from '../checks/capture.ts';
import { INSTALLS } from '../folders.ts';
import { cachedModel } from './hub-cache.ts';

type Trained = Pick<RunConfig, 'model' | 'trainer_server' | 'lora_rank' | 'lora_alpha' | 'target_modules' | 'seed'>;

/** The exit code of `gpu-workers/trialgate_gpu/check_model.py` for a model that cannot be trained. Any other failure is no reason against a run. */
const REFUSED = 3;

/**
 * Checks that our trainer supports a run's model, and that the model has the layers of `target_modules`, before anything is started. It reads only the
 * model's configuration. A model that is not on this machine, and a trainer that is not installed here, are checked where they are, when the run starts.
 * @throws TrialgateError `bad_input` with the trainer's reason
 */
export async function requireTrainable(config: Trained, home: string, signal: AbortSignal): Promise<void> {
  const { model, trainer_server: server, lora_rank, lora_alpha, target_modules, seed } = config;
  const folder = isAbsolute(model) ? model : cachedModel(model, home);
  if (server !== null || folder === null || !existsSync(folder) || !existsSync(INSTALLS.python)) return;
  const settings = JSON.stringify({ lora_rank, lora_alpha, target_modules, seed });
  const command = [INSTALLS.python, '-m', 'trialgate_gpu.check_model', folder, settings];
  const { code, stdout } = await capture(command, signal, { PYTHONPATH: INSTALLS.gpuWorkers });
  if (code === REFUSED)
    throw new TrialgateError(
      'bad_input',
      `${lastLine(stdout)} (--no-check leaves it to the trainer when the run starts)`,
    );
}
