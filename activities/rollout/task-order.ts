import { shuffle } from './shuffle.ts';

/**
 * Returns the task at a position of an endless sequence of seeded shuffles, so that every task has its turn. A task in quarantine gives
 * its place to the next one.
 */
export function taskAt(tasks: readonly string[], position: number, seed: number, quarantined: ReadonlySet<string>): string | null {
  const epoch = shuffle([...tasks], seed + Math.floor(position / tasks.length));
  for (let i = 0; i < epoch.length; i++) {
    const task = epoch[(position + i) % epoch.length];
    if (task !== undefined && !quarantined.has(task)) return task;
  }
  return null;
}
