import { createHash } from 'node:crypto';
import { constants, open, readdir, readFile, realpath, type FileHandle } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { z } from 'zod';
import { parseJson } from '../../../core/json.ts';
import { Failure } from '../../failure.ts';
import { isSettings, type CheckpointFile, type CheckpointReader } from '../../relay/checkpoints.ts';

/** The part of a checkpoint's manifest that is needed here (`gpu-workers/trialgate_gpu/manifest.py`). */
const manifest = z.object({ version: z.int(), files: z.record(z.string(), z.string()) });
type Manifest = z.output<typeof manifest>;

const PART_BYTES = 256 * 1024;

/**
 * The deployment's folder of checkpoints. Only files that the manifest names by their digests and a few settings are read. A link is followed
 * only where a checkpoint links its base model: in `base/`, and in a version 0.
 */
export class CheckpointFiles implements CheckpointReader {
  readonly #folder: string;

  constructor(folder: string) {
    this.#folder = folder;
  }

  async list(name: string): Promise<CheckpointFile[] | null> {
    const known = await this.#manifestOf(name);
    if (!known) return null;
    const weights = Object.entries(known.files).filter(([path]) => ['.', 'base'].includes(dirname(path)));
    const settings = [...(await this.#settingsIn(name, '')), ...(await this.#settingsIn(name, 'base/'))];
    return Promise.all([
      ...weights.map(async ([path, sha256]) => ({ path, sha256, bytes: await this.#sizeOf(name, path, known) })),
      ...settings.map((path) => this.#digested(name, path, known)),
    ]);
  }

  async *read(name: string, { path }: CheckpointFile, from: number): AsyncIterable<Uint8Array> {
    const known = await this.#manifestOf(name);
    if (!known) throw gone(name, path);
    const file = await this.#open(name, path, known);
    try {
      for (let at = from; ;) {
        const { bytesRead, buffer } = await file.read(Buffer.allocUnsafeSlow(PART_BYTES), 0, PART_BYTES, at);
        if (bytesRead === 0) return;
        at += bytesRead;
        yield buffer.subarray(0, bytesRead);
      }
    } finally {
      await file.close();
    }
  }

  /** Returns null for a checkpoint that is not there, is not finished, or is a link to somewhere else. */
  async #manifestOf(name: string): Promise<Manifest | null> {
    let text: string;
    try {
      const folder = await realpath(join(this.#folder, name));
      if (dirname(folder) !== (await realpath(this.#folder))) return null;
      text = await readFile(join(folder, 'manifest.json'), 'utf8');
    } catch (error) {
      if (isAbsent(error)) return null;
      throw error;
    }
    const { data, error } = manifest.safeParse(parseJson(text));
    if (data) return data;
    throw damaged(`the manifest of checkpoint ${name} cannot be read`, error);
  }

  /** The trainer has read all of these as what their names say, so none is another file. */
  async #settingsIn(name: string, below: string): Promise<string[]> {
    const names = await readdir(join(this.#folder, name, below)).catch((error: unknown) => {
      if (isAbsent(error)) return [];
      throw error;
    });
    return names.filter(isSettings).map((each) => `${below}${each}`);
  }

  async #sizeOf(name: string, path: string, known: Manifest): Promise<number> {
    const file = await this.#open(name, path, known);
    try {
      return (await file.stat()).size;
    } finally {
      await file.close();
    }
  }

  async #digested(name: string, path: string, known: Manifest): Promise<CheckpointFile> {
    const file = await this.#open(name, path, known);
    try {
      const content = await file.readFile();
      return { path, bytes: content.byteLength, sha256: createHash('sha256').update(content).digest('hex') };
    } finally {
      await file.close();
    }
  }

  async #open(name: string, path: string, { version }: Manifest): Promise<FileHandle> {
    const below = dirname(path);
    const isLinked = below === 'base' || version === 0;
    try {
      // Of the path only its last part may be a link: `base/` itself is a folder.
      const folder = await realpath(join(this.#folder, name));
      if (below === 'base' && (await realpath(join(folder, below))) !== join(folder, below)) throw gone(name, path);
      const flags = constants.O_RDONLY | constants.O_NONBLOCK | (isLinked ? 0 : constants.O_NOFOLLOW);
      const file = await open(join(folder, below, basename(path)), flags);
      if ((await file.stat()).isFile()) return file;
      await file.close();
    } catch (error) {
      throw isAbsent(error) || hasCode(error, 'ELOOP', 'ENXIO') ? gone(name, path, error) : error;
    }
    throw gone(name, path);
  }
}

const gone = (name: string, path: string, cause?: unknown) =>
  damaged(`the file ${path} of checkpoint ${name} is missing, or is a link where no link may be`, cause);

const damaged = (what: string, cause: unknown) =>
  new Failure(409, 'checkpoint_damaged', what, { retryable: false, cause });

const hasCode = (error: unknown, ...codes: string[]): boolean =>
  error instanceof Error && 'code' in error && codes.some((code) => code === error.code);

const isAbsent = (error: unknown): boolean => hasCode(error, 'ENOENT', 'ENOTDIR');
