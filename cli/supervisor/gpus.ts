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
  /** False where nobody here knows which GPUs both use, and the settings do not say it. */
  isKnown: boolean;
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
 * Divides this machine's GPUs: as the settings name them; else the first ones for the engine and the next ones for the trainer if there are enough; else
 * all of them for both.
 * @param visible the GPUs that this machine has for us, in order
 * @throws TrialgateError `bad_input` when the settings name fewer GPUs than the trainer has ranks
 */
export function shareGpus(config: Wanted, visible: readonly string[]): GpuShares {
  const { engine_gpus: ofEngine, trainer_gpus: ofTrainer, ranks, launch } = config;
  if (ofTrainer !== undefined && launch === undefined && ofTrainer.length < ranks)
    throw new TrialgateError(
      'bad_input',
      `\`trainer_gpus\` names ${ofTrainer.length} GPU(s) for ${ranks} ranks: name one for each, or lower \`ranks\``,
    );
  const size = hasOwnEngine(config) ? engineSize(config.engine_args) : 0;
  // Nothing is known of an engine whose arguments are in a file, and of ranks that a command of the user's starts, perhaps on other machines.
  const isKnown = size !== null && launch === undefined;
  const hasRoom = isKnown && (ofEngine !== undefined || ofTrainer !== undefined || visible.length >= size + ranks);
  const engine = ofEngine ?? (hasRoom ? firstOf(without(visible, ofTrainer), size) : null);
  const trainer = ofTrainer ?? (hasRoom ? firstOf(without(visible, engine), ranks) : null);
  const isSaid = isKnown || size === 0 || (engine !== null && trainer !== null);
  const overlaps = (engine ?? visible).some((gpu) => (trainer ?? visible).includes(gpu));
  return { engine: size === 0 ? null : engine, trainer, isShared: size !== 0 && isSaid && overlaps, isKnown: isSaid };
}

const without = (all: readonly string[], taken: readonly string[] | null | undefined): string[] =>
  all.filter((gpu) => !taken?.includes(gpu));

/** Returns the first `count` GPUs, or null when there are fewer. */
const firstOf = (gpus: readonly string[], count: number): string[] | null =>
  gpus.length < count ? null : gpus.slice(0, count);

/** Returns how this deployment shares its machine's GPUs, or null if it uses none. */
export function gpuSharesOf(config: Wanted): GpuShares | null {
  if (deviceOf(config.device) !== 'cuda') return null;
  const all = listedGpus();
  const visible = process.env['CUDA_VISIBLE_DEVICES']?.split(',').flatMap((gpu) => gpu.trim() || []);
  // A number and a UUID may name the same GPU.
  const byNumber = (gpus: string[] | undefined): string[] | undefined => gpus?.map((gpu) => all.get(gpu) ?? gpu);
  const { engine_gpus, trainer_gpus } = config;
  const named = { ...config, engine_gpus: byNumber(engine_gpus), trainer_gpus: byNumber(trainer_gpus) };
  return shareGpus(named, byNumber(visible) ?? [...all.values()]);
}

/** Returns vLLM's arguments for a GPU that the trainer uses too. */
export function memoryArguments(shares: GpuShares | null, given: readonly string[]): string[] {
  const isGiven = given.some((argument) => withDashes(argument).split('=')[0] === '--gpu-memory-utilization');
  return shares?.isShared && !isGiven ? ['--gpu-memory-utilization', SHARED_MEMORY] : [];
}

/** Returns how the GPUs are shared as a sentence, or null where there is nothing to say. */
export function shareNote(shares: GpuShares | null, given: readonly string[]): string | null {
  if (shares === null) return null;
  if (!shares.isKnown)
    return 'which GPUs the engine and the trainer use is not known here (`launch`, or --config in engine_args): if they are the same ones, name others as engine_gpus and trainer_gpus, or give the engine a part of the memory (--gpu-memory-utilization)';
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

const SIZES = [
  '--tensor-parallel-size|-tp',
  '--pipeline-parallel-size|-pp',
  '--data-parallel-size|-dp',
  '--prefill-context-parallel-size|-pcp',
];

/** Returns the number of GPUs that vLLM's arguments ask for, or null when they are in a file. */
function engineSize(given: readonly string[]): number | null {
  const words = given.map(withDashes).join(' ');
  if (/(?:^| )--config[= ]/.test(words)) return null;
  const sizes = SIZES.map((names) => new RegExp(`(?:^| )(?:${names})[= ](\\d+)`).exec(words)?.[1] ?? '1');
  return sizes.reduce((product, size) => product * Number(size), 1);
}

/** vLLM takes `--like_this` for `--like-this`. */
const withDashes = (argument: string): string => argument.replace(/^--[^=]*/, (name) => name.replaceAll('_', '-'));

/** Returns the number of each GPU that NVIDIA's driver lists, by its UUID. */
export function listedGpus(): Map<string, string> {
  const { stdout } = spawnSync('nvidia-smi', ['-L'], { encoding: 'utf8', timeout: 10_000 });
  // There is no output at all where there is no such program.
  const listed = (stdout ?? '').matchAll(/^GPU (\d+):.*\(UUID: (\S+)\)/gm);
  return new Map([...listed].map(([, index = '', uuid = '']) => [uuid, index]));
}
