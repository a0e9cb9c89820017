import { createHash } from 'node:crypto';
import { open, rename, rm, type FileHandle } from 'node:fs/promises';
import { TrialgateError } from '../../../core/errors.ts';

export type FetchedFile = {
  /** The file's final place. It is written beside that, and put there when it is whole. */
  target: string;
  bytes: number;
  sha256: string;
  /** Returns the content from this byte on, or from the start if the server cannot begin there. Rejects when it breaks off. */
  read: (from: number) => Promise<{ from: number; body: AsyncIterable<Uint8Array> }>;
  /** Asks `work` again after it has failed, as long as this may help. `size` is how much there is. */
  again: (work: () => Promise<void>, size: () => number) => Promise<void>;
  onSize: (size: number) => void;
  signal: AbortSignal;
};

/** The end of the name of a file that is not whole yet. */
export const PART = '.part';

/** Fetches a file, and goes on from what an earlier try has left. What does not have the digest is never put into place. */
export async function fetchFile(file: FetchedFile): Promise<void> {
  const part = `${file.target}${PART}`;
  for (;;) {
    const { isRight, wasBegun } = await fillPart(part, file);
    if (isRight) return rename(part, file.target);
    await rm(part);
    // What an earlier try left may have been damaged by the end of its machine.
    if (wasBegun) continue;
    throw new TrialgateError(
      'bad_input',
      `what came of it does not have its SHA-256 ${file.sha256}: the file is damaged at the gateway, or was changed on its way`,
    );
  }
}

async function fillPart(part: string, { bytes, sha256, read, again, onSize, signal }: FetchedFile) {
  const handle = await open(part, 'a+');
  try {
    let { size } = await handle.stat();
    const wasBegun = size > 0;
    onSize(size);
    const goOn = async () => {
      if (size >= bytes) return;
      // A write that failed may have left a part of its bytes.
      await handle.truncate(size);
      const { from, body } = await read(size);
      if (from !== size) {
        await handle.truncate(0);
        size = 0;
      }
      for await (const piece of body) {
        if (size + piece.byteLength > bytes)
          throw new TrialgateError('bad_input', `the gateway sends more than its ${bytes} bytes: it is damaged there`);
        await handle.appendFile(piece);
        size += piece.byteLength;
        onSize(size);
      }
      if (size < bytes) throw new Error('the connection was cut');
    };
    await again(goOn, () => size);
    // After a loss of power a file must not be in place without its content.
    await handle.sync();
    // What is on the disk is checked, not what was sent.
    return { isRight: size === bytes && (await digestOf(handle, signal)) === sha256, wasBegun };
  } finally {
    await handle.close();
  }
}

async function digestOf(handle: FileHandle, signal: AbortSignal): Promise<string> {
  const hash = createHash('sha256');
  for await (const piece of handle.createReadStream({ start: 0, autoClose: false })) {
    signal.throwIfAborted();
    hash.update(piece);
  }
  return hash.digest('hex');
}
