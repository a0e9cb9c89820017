import { readFileSync } from 'node:fs';
import { setImmediate as turnOfTheEventLoop } from 'node:timers/promises';
import { deletedFiles } from './deleted-files.ts';
import { processTable, treeOf, type ProcessRow } from './process-table.ts';

export type Excess = 'out_of_memory' | 'process_limit' | 'storage_limit' | 'descriptor_limit';

type TreeWatch = {
  pid: number;
  uid: number | null;
  memoryMb: number;
  processes: number;
  onExcess: (excess: Excess) => void;
};

const INTERVAL_MS = 500;
/** The sandboxes' network connections also pass through this process. When a check takes long, checks become less frequent. */
const CHECKING_SHARE = 0.1;
/** Room for bubblewrap's own processes, and for one that is just ending. */
export const EXTRA_PROCESSES = 8;
const watched = new Set<TreeWatch>();
let timer: NodeJS.Timeout | null = null;

/**
 * Enforces the limits that rlimits cannot, where there are no control groups: memory and processes of a whole tree. One read of
 * /proc serves all sandboxes of this process. A process tree that ends within half a second is not checked.
 */
export function watchTree(entry: TreeWatch): () => void {
  watched.add(entry);
  timer ??= checkIn(INTERVAL_MS);
  return () => {
    watched.delete(entry);
    if (watched.size > 0 || !timer) return;
    clearTimeout(timer);
    timer = null;
  };
}

function checkIn(ms: number): NodeJS.Timeout {
  return setTimeout(async () => {
    const busyMs = await checkAll();
    // A watch that began in the meantime may have set a timer of its own.
    if (watched.size > 0) {
      if (timer) clearTimeout(timer);
      timer = checkIn(Math.max(INTERVAL_MS, busyMs / CHECKING_SHARE));
    }
  }, ms).unref();
}

/** Checks every watched process tree once. Returns how many milliseconds that blocked the event loop. */
async function checkAll(): Promise<number> {
  const start = performance.now();
  const rows = processTable();
  let busyMs = performance.now() - start;
  for (const entry of watched) {
    await turnOfTheEventLoop();
    if (!watched.has(entry)) continue;
    const begin = performance.now();
    const excess = excessOf(entry, treeOf(rows, entry.pid, entry.uid));
    busyMs += performance.now() - begin;
    if (excess) entry.onExcess(excess);
  }
  return busyMs;
}

function excessOf({ memoryMb, processes }: TreeWatch, tree: ProcessRow[]): Excess | null {
  const memory = memoryOf(tree);
  if (memory === null) return 'descriptor_limit';
  if (memory > memoryMb * 2 ** 20) return 'out_of_memory';
  return tree.length > processes + EXTRA_PROCESSES ? 'process_limit' : null;
}

/** Returns the memory that the processes have mapped, plus the files in memory that they hold open without mapping them. Null: too many descriptors. */
function memoryOf(tree: ProcessRow[]): number | null {
  const resident = tree.reduce((sum, row) => sum + row.rssBytes, 0);
  const deleted = deletedFiles(tree.map(({ pid }) => pid));
  if (deleted === null) return null;
  if (deleted.memoryBytes === 0) return resident;
  const mapped = tree.reduce((sum, { pid }) => sum + sharedBytes(pid), 0);
  return resident + Math.max(0, deleted.memoryBytes - mapped);
}

function sharedBytes(pid: number): number {
  try {
    return Number(/^RssShmem:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1] ?? 0) * 1024;
  } catch {
    return 0;
  }
}
