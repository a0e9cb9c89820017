import { existsSync, globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { homeFolders } from '../folders.ts';

/** True for the folder of a model that can be trained: it has a configuration and weights in the format that the trainer reads. */
export const hasWeights = (folder: string): boolean =>
  existsSync(join(folder, 'config.json')) && globSync('*.safetensors', { cwd: folder }).length > 0;

/**
 * Returns the folder of a downloaded model in the cache that the deployment's engine and trainer use; null when it is not there.
 * `HF_HUB_CACHE` and `HF_HOME` place it, as for Hugging Face's own tools.
 */
export function cachedModel(name: string, home: string): string | null {
  const { HF_HUB_CACHE, HF_HOME } = process.env;
  const cache = HF_HUB_CACHE ?? join(HF_HOME ?? join(homeFolders(home).cache, 'huggingface'), 'hub');
  const folder = join(cache, `models--${name.replaceAll('/', '--')}`);
  const main = readMain(folder);
  return main !== null && hasWeights(main) ? main : null;
}

/** Returns the folder of the newest download. */
function readMain(folder: string): string | null {
  try {
    return join(folder, 'snapshots', readFileSync(join(folder, 'refs/main'), 'utf8').trim());
  } catch {
    return null;
  }
}
