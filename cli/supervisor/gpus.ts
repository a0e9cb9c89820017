import { spawnSync } from 'node:child_process';
import { TrialgateError } from '../../core/errors.ts';
import { hasOwnEngine, type Deployment } from '../config/schema.ts';
import { deviceOf } from './device.ts';

/** The GPUs of the deployment's own vLLM and of its trainer, by index or UUID as in CUDA_VISIBLE_DEVICES. Null leaves a process all that it sees. */
export type GpuShares = {
  engine: string[] | null;
  trainer: string[] | null;
  /** True when engine and trainer have a GPU in common. */
  isShared: boolean;
};

type Wanted = Pick<
  Deployment,
  | 'device'
  | 'engine_gpus'
  | 'trainer_gpus'
  | 'engine_args'
  | 'ranks'
  | 'launch'
  | 'engines'
  | 'engines_file'
  | 'engines_kubernetes'
>;

/** The part of a shared GPU's memory that vLLM takes. Its own default leaves a trainer none. */
const SHARED_MEMORY = '0.45';

/**
 * Divides this machine's GPUs: those that the settings name; else the first ones for the engine and the next ones for the trainer if there are enough;
 * else all of them for both.
 * @param visible the GPUs that this machine has for us, in order
 * @throws TrialgateError `bad_input` when the settings name fewer GPUs than the trainer has ranks
 */
export function shareGpus(config: Wanted, visible: readonly string[]): GpuShares {
  const { engine_gpus, trainer_gpus, ranks, launch } = config;
  if (trainer_gpus !== undefined && launch === undefined && trainer_gpus.length < ranks)
    throw new TrialgateError(
      'bad_input',
      `\`trainer_gpus\` names ${trainer_gpus.length} GPU(s) for ${ranks} ranks: name one for each, or lower \`ranks\``,
    );
  const ofEngine = hasOwnEngine(config) ? engineSize(config.engine_args) : 0;
  const hasRoom = visible.length >= ofEngine + ranks && launch === undefined;
  const engine = engine_gpus ?? (hasRoom ? without(visible, trainer_gpus).slice(0, ofEngine) : null);
  const trainer = trainer_gpus ?? (hasRoom ? without(visible, engine ?? undefined).slice(0, ranks) : null);
  const isShared = ofEngine > 0 && (engine ?? visible).some((gpu) => (trainer ?? visible).includes(gpu));
  return { engine: ofEngine > 0 ? engine : null, trainer, isShared };
}

const without = (all: readonly string[], taken: readonly string[] = []): string[] =>
  all.filter((gpu) => !taken.includes(gpu));

/** Returns how this deployment shares its machine's GPUs, or null if it uses none. */
export function gpuSharesOf(config: Wanted & Pick<Deployment, 'device'>): GpuShares | null {
  return deviceOf(config.device) === 'cuda' ? shareGpus(config, visibleGpus()) : null;
}

/** Returns vLLM's arguments for a GPU that the trainer uses too. */
export function memoryArguments(shares: GpuShares | null, given: readonly string[]): string[] {
  const isGiven = given.some((argument) => argument.split('=')[0] === '--gpu-memory-utilization');
  return shares?.isShared && !isGiven ? ['--gpu-memory-utilization', SHARED_MEMORY] : [];
}

/** Returns how the GPUs are shared as a sentence, or null where there is nothing to say. */
export function shareNote(shares: GpuShares | null, given: readonly string[]): string | null {
  if (shares === null) return null;
  if (shares.isShared)
    return `engine and trainer share a GPU${
      memoryArguments(shares, given).length > 0
        ? `: the engine takes ${Number(SHARED_MEMORY) * 100} % of its memory (engine_args: --gpu-memory-utilization changes that)`
        : ''
    }`;
  return shares.engine && shares.trainer
    ? `the engine uses GPU ${shares.engine.join(', ')}, the trainer GPU ${shares.trainer.join(', ')}`
    : null;
}

/** Returns the environment that limits a process to these GPUs. */
export const onlyGpus = (gpus: readonly string[] | null | undefined): NodeJS.ProcessEnv =>
  gpus ? { CUDA_VISIBLE_DEVICES: gpus.join(',') } : {};

const SIZES = ['--tensor-parallel-size|-tp', '--pipeline-parallel-size|-pp', '--data-parallel-size|-dp'];

/** Returns the number of GPUs that vLLM's arguments ask for. */
function engineSize(given: readonly string[]): number {
  const sizes = SIZES.map((names) => new RegExp(`(?:^| )(?:${names})[= ](\\d+)`).exec(given.join(' '))?.[1] ?? '1');
  return sizes.reduce((product, size) => product * Number(size), 1);
}

/** Returns the GPUs that the environment leaves to us, or else all that NVIDIA's driver lists. */
function visibleGpus(): string[] {
  const limited = process.env['CUDA_VISIBLE_DEVICES'];
  if (limited !== undefined)
    return limited
      .split(',')
      .map((gpu) => gpu.trim())
      .filter(Boolean);
  const listed = spawnSync('nvidia-smi', ['-L'], { encoding: 'utf8', timeout: 10_000 });
  return [...listed.stdout.matchAll(/^GPU (\d+):/gm)].flatMap(([, index]) => index ?? []);
}
