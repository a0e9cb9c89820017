import type { Dir, Dirent } from 'node:fs';
import { chmod, opendir } from 'node:fs/promises';

export type WalkedEntry = {
  entry: Dirent;
  /** The path including the folder that is walked, for the functions of `fs`. */
  path: Buffer;
  depth: number;
};

/**
 * Yields every entry below a folder. A folder's entries come after the folder itself, and links are not followed. A sandbox may use
 * any bytes in a name, so paths are bytes. `enter` decides whether a folder's entries are walked too.
 */
export async function* walkFiles(
  folder: string | Buffer,
  enter: (walked: WalkedEntry) => Promise<boolean> = async () => true,
  depth = 0,
): AsyncGenerator<WalkedEntry> {
  for await (const entry of await readable(folder)) {
    const walked = { entry, path: joinBytes(folder, Buffer.from(entry.name, 'latin1')), depth };
    yield walked;
    if (entry.isDirectory() && (await enter(walked))) yield* walkFiles(walked.path, enter, depth + 1);
  }
}

async function readable(folder: string | Buffer): Promise<Dir> {
  // Latin-1 gives each byte of a name one character. UTF-8 would replace bytes that it cannot decode.
  const open = (): Promise<Dir> => opendir(folder, { encoding: 'latin1' });
  try {
    return await open();
  } catch (error) {
    if (!(error instanceof Error) || !('code' in error) || error.code !== 'EACCES') throw error;
    // An agent may have removed all permissions of its folder, which stops a worker that is not root.
    await chmod(folder, 0o700);
    return open();
  }
}

export function joinBytes(folder: string | Buffer, name: Buffer): Buffer {
  return Buffer.concat([Buffer.from(folder), Buffer.from('/'), name]);
}
