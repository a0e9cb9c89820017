import { processTable, treeOf } from './process-table.ts';

export type Excess = 'out_of_memory' | 'process_limit';

type Watched = {
  pid: number;
  uid: number | null;
  memoryMb: number;
  processes: number;
  onExcess: (excess: Excess) => void;
};

const INTERVAL_MS = 500;
/** bubblewrap's own processes, and some room for one that is just ending. */
const OURS = 8;
const watched = new Set<Watched>();
let timer: NodeJS.Timeout | null = null;

/**
 * Limits that rlimits cannot hold: memory and processes of a whole tree. One look at /proc serves all sandboxes of
 * this process; it counts nothing for a tree that ends within half a second.
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
    const bytes = tree.reduce((sum, row) => sum + row.rssBytes, 0);
    if (bytes > entry.memoryMb * 2 ** 20) entry.onExcess('out_of_memory');
    else if (tree.length > entry.processes + OURS) entry.onExcess('process_limit');
  }
}
