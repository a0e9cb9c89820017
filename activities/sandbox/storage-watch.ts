import { execFile } from 'node:child_process';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import { deletedFiles } from './deleted-files.ts';
import type { Isolation } from './isolation.ts';
import { processTable, treeOf, type ProcessRow } from './process-table.ts';
import type { Excess } from './tree-watch.ts';

const run = promisify(execFile);

const INTERVAL_MS = 2000;
/** A folder that takes long to count is counted less often. */
const COUNTING_SHARE = 0.05;
/** This number of files and folders is an attack on the host, however small they are. */
const MAX_ENTRIES = 200_000;

type StorageWatch = {
  root: string;
  storageMb: number;
  /** The sandbox's first process. Files that its descendants have deleted and still hold open count too. */
  pid: number;
  uid: number | null;
  isolation: Pick<Isolation, 'kind' | 'bwrap'>;
  onExcess: (excess: Excess) => void;
  /** The function that gets the bytes of each count. The first count comes some seconds after the start. */
  onCount?: (bytes: number) => void;
};

/** Counts what a sandbox has on the disk, and calls `onExcess` when it uses more than `storageMb`, or has too many files or descriptors. Returns a function that ends the watch. */
export function watchStorage({ root, storageMb, pid, uid, isolation, onExcess, onCount }: StorageWatch): () => void {
  const stop = new AbortController();
  const excess = async (): Promise<Excess | null> => {
    const deleted = deletedFiles(treeOf(recentTable(), pid, uid).map((row) => row.pid));
    if (deleted === null) return 'descriptor_limit';
    const bytes = (await measure(root, '--block-size=1', isolation)) + deleted.diskBytes;
    onCount?.(bytes);
    if (bytes > storageMb * 2 ** 20) return 'storage_limit';
    return (await measure(root, '--inodes', isolation)) > MAX_ENTRIES ? 'storage_limit' : null;
  };
  const watch = async (): Promise<void> => {
    for (let pause = INTERVAL_MS; ;) {
      await sleep(pause, undefined, { signal: stop.signal, ref: false });
      const start = performance.now();
      const found = await excess();
      stop.signal.throwIfAborted();
      if (found) return onExcess(found);
      pause = Math.max(INTERVAL_MS, (performance.now() - start) / COUNTING_SHARE);
    }
  };
  // This promise rejects only when the watch is stopped.
  void watch().catch(() => {});
  return () => stop.abort();
}

const TABLE_MS = 1000;
let table: { rows: ProcessRow[]; readAt: number } = { rows: [], readAt: -Infinity };

/** One read of /proc serves the watches of all sandboxes for a second. */
function recentTable(): ProcessRow[] {
  if (performance.now() - table.readAt > TABLE_MS) table = { rows: processTable(), readAt: performance.now() };
  return table.rows;
}

/** `du` walks by descriptors, so depth and names do not matter. It fails for files that are removed meanwhile, but counts the rest. */
async function measure(
  folder: string,
  unit: '--block-size=1' | '--inodes',
  isolation: Pick<Isolation, 'kind' | 'bwrap'>,
): Promise<number> {
  const du = ['du', '-s', '-x', unit, '--', folder];
  const counted = await output(du);
  // An agent can close its folders to a worker that is not root. The owner of a user namespace may enter them from inside.
  if (counted.isWhole || process.getuid?.() === 0 || isolation.kind !== 'bubblewrap' || !isolation.bwrap)
    return counted.amount;
  const asOwner = await output([
    isolation.bwrap,
    '--unshare-user',
    '--uid',
    '0',
    '--gid',
    '0',
    '--cap-add',
    'CAP_DAC_READ_SEARCH',
    '--dev-bind',
    '/',
    '/',
    '--',
    ...du,
  ]);
  return Math.max(counted.amount, asOwner.amount);
}

async function output([command = '', ...args]: string[]): Promise<{ amount: number; isWhole: boolean }> {
  const amountIn = (stdout = ''): number => Number.parseInt(stdout, 10) || 0;
  return run(command, args, { maxBuffer: 2 ** 24 }).then(
    ({ stdout }) => ({ amount: amountIn(stdout), isWhole: true }),
    (error: { stdout?: string }) => ({ amount: amountIn(error.stdout), isWhole: false }),
  );
}
