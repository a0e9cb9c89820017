import { readFileSync } from 'node:fs';
import { readEngineKeys, type EngineKeys } from '../../gateway/engines/engine-keys.ts';

/** Reads the keys that the setting `engine_keys` names, from files and this process's environment. */
export const engineKeysOf = (entries: readonly string[], env: NodeJS.ProcessEnv = process.env): EngineKeys =>
  readEngineKeys(entries, (place) => (place.startsWith('/') ? textOf(place) : env[place]));

function textOf(file: string): string | null {
  try {
    return readFileSync(file, 'utf8');
  } catch {
    return null;
  }
}
