import { createHash } from 'node:crypto';

/**
 * Returns the task at a position of an endless sequence of seeded shuffles, so that every task has its turn. A task in quarantine gives
 * its place to the next one.
 */
export function taskAt(
  tasks: readonly string[],
  position: number,
  seed: number,
  quarantined: ReadonlySet<string>,
): string | null {
  const epoch = shuffle([...tasks], seed + Math.floor(position / tasks.length));
  for (let i = 0; i < epoch.length; i++) {
    const task = epoch[(position + i) % epoch.length];
    if (task !== undefined && !quarantined.has(task)) return task;
  }
  return null;
}

/** Returns the items sorted by a hash of (seed, base name): the same order for the same seed on every machine. */
function shuffle(items: string[], seed: number): string[] {
  const rank = (item: string) =>
    createHash('sha256')
      .update(`${seed}\n${basename(item)}`)
      .digest('hex');
  return items.toSorted((a, b) => rank(a).localeCompare(rank(b)));
}

const basename = (path: string): string => path.slice(path.lastIndexOf('/') + 1);
