import { execFile } from 'node:child_process';
import { mkdirSync } from 'node:fs';
import { mkdtemp, open, rm, type FileHandle } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';

const run = promisify(execFile);
const MIB = 2 ** 20;
/** Also takes the space that other processes free in the meantime. */
const AGAIN_MS = 200;

/** A small file system below a folder, which can be filled to its last byte, so that writes to it get a real ENOSPC. */
export class SmallDisk {
  readonly folder: string;
  readonly #ballast: string;

  private constructor(folder: string) {
    this.folder = folder;
    this.#ballast = join(folder, '.ballast');
  }

  static async mount(folder: string, mib: number): Promise<SmallDisk> {
    mkdirSync(folder, { recursive: true });
    await run('mount', ['-t', 'tmpfs', '-o', `size=${mib}m,mode=755`, 'tmpfs', folder]);
    return new SmallDisk(folder);
  }

  /** Returns null when this machine allows a mount, otherwise the reason why it does not. */
  static async refusal(): Promise<string | null> {
    const folder = await mkdtemp(join(tmpdir(), 'trialgate-mount-'));
    try {
      const disk = await SmallDisk.mount(folder, 1);
      await disk.unmount();
      return null;
    } catch (error) {
      return error instanceof Error ? (error.message.trim().split('\n').at(-1) ?? error.message) : String(error);
    } finally {
      await rm(folder, { recursive: true, force: true });
    }
  }

  /** Fills the disk while `body` runs, and frees the space again when this returns or rejects. */
  async whileFull<T>(body: () => Promise<T>, signal: AbortSignal): Promise<T> {
    const file = await open(this.#ballast, 'w');
    const over = new AbortController();
    const stop = AbortSignal.any([signal, over.signal]);
    try {
      await fill(file);
      const filling = keepFull(file, stop);
      return await body().finally(() => {
        over.abort();
        return filling;
      });
    } finally {
      await file.close();
      await rm(this.#ballast, { force: true });
    }
  }

  fullFor(ms: number, signal: AbortSignal): Promise<void> {
    return this.whileFull(() => sleep(ms, undefined, { signal }), signal);
  }

  async unmount(): Promise<void> {
    await run('umount', ['-l', this.folder]);
  }
}

async function keepFull(file: FileHandle, stop: AbortSignal): Promise<void> {
  while (!stop.aborted) {
    await fill(file);
    await sleep(AGAIN_MS, undefined, { signal: stop }).catch(() => {});
  }
}

async function fill(file: FileHandle): Promise<void> {
  const ballast = Buffer.alloc(MIB);
  for (let size = MIB; size >= 1; size /= 16) {
    try {
      for (;;) await file.write(ballast, 0, size);
    } catch (error) {
      if (!(error instanceof Error && 'code' in error && error.code === 'ENOSPC')) throw error;
    }
  }
}
