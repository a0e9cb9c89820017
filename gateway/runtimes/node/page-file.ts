import { readFile } from 'node:fs/promises';
import { join } from 'node:path';

/** Returns a function that reads a file of the built page, or null if it is not there. The page may be built while the gateway runs. */
export const pageFileIn =
  (folder: string | undefined) =>
  async (name: string): Promise<Uint8Array<ArrayBuffer> | null> => {
    if (folder === undefined) return null;
    try {
      return new Uint8Array(await readFile(join(folder, name)));
    } catch {
      return null;
    }
  };
