import { shuffle } from '../shuffle.ts';

/** An endless walk over seeded shuffles of the tasks, so that none is starved; one in quarantine gives its place to the next. */
export function taskAt(tasks: readonly string[], position: number, seed: number, quarantined: ReadonlySet<string>): string | null {
  const epoch = shuffle([...tasks], seed + Math.floor(position / tasks.length));
  for (let i = 0; i < epoch.length; i++) {
    const task = epoch[(position + i) % epoch.length];
    if (task !== undefined && !quarantined.has(task)) return task;
  }
  return null;
}
