import { z } from 'zod';

/** The gateway's route at which relay workers find the deployment's checkpoints. */
export const CHECKPOINTS = '/relay/checkpoints';

/** The worker's own route. It fetches the checkpoint at a path of the deployment, while the engine still answers calls. */
export const FETCH_CHECKPOINT = '/trialgate/checkpoint';

/** The code of an error that says that the gateway has no such checkpoint, or no such file in it. */
export const NO_CHECKPOINT = 'checkpoint_not_found';

/** What an engine reads beside the weights. */
const SETTINGS = '(?:config|adapter_config|model\\.safetensors\\.index)\\.json';
const SETTINGS_NAME = new RegExp(`^${SETTINGS}$`);
/** Names no folder above, no hidden file and no folder below but `base`. No other form of weights: those are Python's pickles, which run code. */
const FILE_PATH = new RegExp(`^(?:base/)?(?:[^./\\0][^/\\0]*\\.safetensors|${SETTINGS})$`);
const DIGEST = /^[0-9a-f]{64}$/;
/** A name that begins with a dot is that of a checkpoint that is being written. */
const NAME = '[A-Za-z0-9_-][A-Za-z0-9._-]{0,254}';
const CHECKPOINT_NAME = new RegExp(`^${NAME}$`);
const CHECKPOINT_PATH = new RegExp(`^(?:/[^/\\0]+)*/checkpoints/(${NAME})(/base)?$`);

/** The files of a checkpoint that an engine loads. */
export const checkpointList = z.object({
  files: z.array(
    z.object({ path: z.string().regex(FILE_PATH), bytes: z.int().min(0), sha256: z.string().regex(DIGEST) }),
  ),
});
export type CheckpointFile = z.output<typeof checkpointList>['files'][number];

export const isSettings = (name: string): boolean => SETTINGS_NAME.test(name);

export const isCheckpointName = (name: string): boolean => CHECKPOINT_NAME.test(name);

/** The folder that an engine is to load: `base/` of a checkpoint, or what is beside that. */
export type CheckpointFolder = { name: string; isBase: boolean };

/** Returns the folder of a checkpoint that is at this path of the deployment's machine; null when it is none. */
export function checkpointAt(path: string): CheckpointFolder | null {
  const [, name, base] = CHECKPOINT_PATH.exec(path) ?? [];
  if (name === undefined || path.split('/').some((part) => part === '.' || part === '..')) return null;
  return { name, isBase: base !== undefined };
}

/** Returns the files of a folder. An adapter is loaded without its base. */
export const filesOf = (files: readonly CheckpointFile[], { isBase }: CheckpointFolder): CheckpointFile[] =>
  files.filter(({ path }) => path.startsWith('base/') === isBase);

/** Reads the deployment's checkpoints. Each runtime that has files has its own. */
export interface CheckpointReader {
  /** Returns null when there is no finished checkpoint of this name. */
  list: (name: string) => Promise<CheckpointFile[] | null>;
  /** Reads a listed file from its byte `from` on. */
  read: (name: string, file: CheckpointFile, from: number) => AsyncIterable<Uint8Array>;
}
