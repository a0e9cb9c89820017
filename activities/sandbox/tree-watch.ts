import { readFileSync, readdirSync, readlinkSync, statSync } from 'node:fs';
import { processTable, treeOf, type ProcessRow } from './process-table.ts';

export type Excess = 'out_of_memory' | 'process_limit' | 'storage_limit';

type Watched = {
  pid: number;
  uid: number | null;
  memoryMb: number;
  processes: number;
  onExcess: (excess: Excess) => void;
};

const INTERVAL_MS = 500;
/** bubblewrap's own processes, and some room for one that is just ending. */
export const OURS = 8;
const watched = new Set<Watched>();
let timer: NodeJS.Timeout | null = null;

/**
 * Enforces the limits that rlimits cannot, where there are no control groups: memory and processes of a whole tree. One read of
 * /proc serves all sandboxes of this process. It counts nothing for a tree that ends within half a second.
 */
export function watchTree(entry: Watched): () => void {
  watched.add(entry);
  timer ??= setInterval(look, INTERVAL_MS).unref();
  return () => {
    watched.delete(entry);
    if (watched.size > 0 || !timer) return;
    clearInterval(timer);
    timer = null;
  };
}

function look(): void {
  const rows = processTable();
  for (const entry of watched) {
    const tree = treeOf(rows, entry.pid, entry.uid);
    if (memoryOf(tree) > entry.memoryMb * 2 ** 20) entry.onExcess('out_of_memory');
    else if (tree.length > entry.processes + OURS) entry.onExcess('process_limit');
  }
}

/** Returns the memory that the processes have mapped, plus the files in memory that they hold open without mapping them. */
function memoryOf(tree: ProcessRow[]): number {
  const resident = tree.reduce((sum, row) => sum + row.rssBytes, 0);
  const files = new Map(tree.flatMap(({ pid }) => filesInMemory(pid)));
  if (files.size === 0) return resident;
  const mapped = tree.reduce((sum, { pid }) => sum + sharedBytes(pid), 0);
  return resident + Math.max(0, [...files.values()].reduce((sum, bytes) => sum + bytes, 0) - mapped);
}

/** Returns the memfds that a process holds, by inode. */
function filesInMemory(pid: number): [number, number][] {
  const folder = `/proc/${pid}/fd`;
  const found: [number, number][] = [];
  try {
    for (const descriptor of readdirSync(folder)) {
      const file = `${folder}/${descriptor}`;
      if (!readlinkSync(file).startsWith('/memfd:')) continue;
      const { ino, blocks } = statSync(file);
      found.push([ino, blocks * 512]);
    }
  } catch {
    // The process has ended or has closed the file.
  }
  return found;
}

function sharedBytes(pid: number): number {
  try {
    return Number(/^RssShmem:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1] ?? 0) * 1024;
  } catch {
    return 0;
  }
}
