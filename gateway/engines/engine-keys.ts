import { TrialgateError } from '../../core/errors.ts';
import { engineAt } from '../../core/engine-url.ts';

/** The keys of engines whose URL names their kind, by the host of that URL. */
export type EngineKeys = Readonly<Record<string, string>>;

/**
 * An entry of the setting `engine_keys`: the host of an engine's URL, and the environment variable or the file that has its key. The key
 * itself stands in no setting, because settings are shown.
 */
export const ENGINE_KEY = /^([^\s=@/]+)=([A-Z][A-Z0-9_]*|\/.+)$/;

/** Reads the keys that these entries name. @throws TrialgateError `missing_prerequisite` when one is not there */
export const readEngineKeys = (
  entries: readonly string[],
  read: (variableOrFile: string) => string | null | undefined,
): EngineKeys =>
  Object.fromEntries(
    entries.map((entry) => {
      const [, host = '', place = ''] = ENGINE_KEY.exec(entry) ?? [];
      const key = read(place)?.trim();
      if (key) return [host, key];
      const what = place.startsWith('/')
        ? `the file ${place} has none`
        : `the environment variable ${place} is not set`;
      throw new TrialgateError('missing_prerequisite', `engine_keys: the key of ${host} is missing: ${what}`);
    }),
  );

/** Returns the header that has the engine's key, if it has one. Other kinds of engines get none. */
export function keyHeader(keys: EngineKeys, url: string): Record<string, string> {
  const { kind, address } = engineAt(url);
  const key = kind === null || !URL.canParse(address) ? undefined : keys[new URL(address).host];
  return key === undefined ? {} : { authorization: `Bearer ${key}` };
}
