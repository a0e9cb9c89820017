import { execFile } from 'node:child_process';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';

const run = promisify(execFile);

const INTERVAL_MS = 2000;
/** A folder that takes long to count is counted less often. */
const COUNTING_SHARE = 0.05;
/** This number of files and folders is an attack on the host, however small they are. */
const MAX_ENTRIES = 200_000;

/** Calls `onExcess` when a folder uses more than `storageMb` or has too many files. Returns a function that ends the watch. */
export function watchStorage({ root, storageMb, onExcess }: { root: string; storageMb: number; onExcess: () => void }): () => void {
  const stop = new AbortController();
  const watch = async (): Promise<void> => {
    for (let pause = INTERVAL_MS; ; ) {
      await sleep(pause, undefined, { signal: stop.signal, ref: false });
      const start = performance.now();
      const isOver = (await measure(root, '--block-size=1')) > storageMb * 2 ** 20 || (await measure(root, '--inodes')) > MAX_ENTRIES;
      stop.signal.throwIfAborted();
      if (isOver) return onExcess();
      pause = Math.max(INTERVAL_MS, (performance.now() - start) / COUNTING_SHARE);
    }
  };
  // This promise rejects only when the watch is stopped.
  void watch().catch(() => {});
  return () => stop.abort();
}

/** `du` walks by descriptors, so depth and names do not matter. It fails for files that are removed meanwhile, but counts the rest. */
async function measure(folder: string, unit: '--block-size=1' | '--inodes'): Promise<number> {
  const counted = run('du', ['-s', '-x', unit, '--', folder], { maxBuffer: 2 ** 24 });
  const { stdout } = await counted.catch((error: { stdout?: string }) => ({ stdout: error.stdout ?? '' }));
  return Number.parseInt(stdout, 10) || 0;
}
