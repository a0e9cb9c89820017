import { createHash } from 'node:crypto';
import type { SourceTasks } from '../tasks/list-tasks.ts';

/** The least positions of a block, within which the sources' shares are exact. */
const BLOCK = 100;

/**
 * Returns the task at each position of an endless order that follows from the seed. Without weights, all tasks are shuffled anew in each epoch,
 * so that every task has its turn. With weights, each source has its share of the positions and shuffles its own tasks. A task in
 * quarantine gives its place to the next one of its source, else to one of another source; null when all are in quarantine.
 */
export function taskOrder(
  sources: readonly Pick<SourceTasks, 'tasks' | 'weight'>[],
  seed: number,
  quarantined: ReadonlySet<string>,
): (position: number) => string | null {
  const inTurnOfAll = turns([...new Set(sources.flatMap(({ tasks }) => tasks))], seed, quarantined);
  if (sources.every(({ weight }) => weight === undefined)) return inTurnOfAll;
  const inTurn = sources.map(({ tasks }) => turns(tasks, seed, quarantined));
  const sourceAt = sourceOrder(
    sources.map(({ weight = 1 }) => weight),
    seed,
  );
  return (position) => {
    const { source, turn } = sourceAt(position);
    return inTurn[source]?.(turn) ?? inTurnOfAll(position);
  };
}

function turns(tasks: readonly string[], seed: number, quarantined: ReadonlySet<string>) {
  const epochs = new Map<number, string[]>();
  return (position: number): string | null => {
    const number = Math.floor(position / tasks.length);
    const epoch = epochs.get(number) ?? shuffle(tasks, seed + number, basename);
    epochs.set(number, epoch);
    for (let i = 0; i < epoch.length; i++) {
      const task = epoch[(position + i) % epoch.length];
      if (task !== undefined && !quarantined.has(task)) return task;
    }
    return null;
  };
}

/** Returns a function that says which source has a position, and how many positions that source had before. */
function sourceOrder(weights: readonly number[], seed: number) {
  const length = Math.max(BLOCK, 10 * weights.length);
  const shares = sharesOf(weights, length);
  const slots = shares.flatMap((share, source) => Array.from({ length: share }, (_, i) => `${source}/${i}`));
  const orders = new Map<number, number[]>();
  return (position: number): { source: number; turn: number } => {
    const block = Math.floor(position / length);
    const order =
      orders.get(block) ?? shuffle(slots, seed + block, (slot) => slot).map((slot) => Number(slot.split('/')[0]));
    orders.set(block, order);
    const here = position % length;
    const source = order[here] ?? 0;
    const earlier = order.slice(0, here).filter((each) => each === source).length;
    return { source, turn: block * (shares[source] ?? 0) + earlier };
  };
}

/** Divides the positions of a block by weight. The largest remainders get what is left; a source that would get nothing gets one position of the largest share. */
function sharesOf(weights: readonly number[], length: number): number[] {
  const total = weights.reduce((sum, weight) => sum + weight, 0);
  const exact = weights.map((weight) => (length * weight) / total);
  const shares = exact.map(Math.floor);
  const left = length - shares.reduce((sum, share) => sum + share, 0);
  const byRemainder = exact
    .map((share, i) => ({ i, rest: share % 1 }))
    .toSorted((a, b) => b.rest - a.rest || a.i - b.i);
  for (const { i } of byRemainder.slice(0, left)) shares[i] = (shares[i] ?? 0) + 1;
  for (const [i, share] of shares.entries()) {
    if (share > 0) continue;
    const largest = shares.indexOf(Math.max(...shares));
    shares[largest] = (shares[largest] ?? 0) - 1;
    shares[i] = 1;
  }
  return shares;
}

/** Returns the items sorted by a hash of (seed, name): the same order for the same seed on every machine. */
function shuffle(items: readonly string[], seed: number, nameOf: (item: string) => string): string[] {
  const ranked = items.map((item) => ({
    item,
    rank: createHash('sha256')
      .update(`${seed}\n${nameOf(item)}`)
      .digest('hex'),
  }));
  return ranked.toSorted((a, b) => (a.rank < b.rank ? -1 : a.rank > b.rank ? 1 : 0)).map(({ item }) => item);
}

const basename = (path: string): string => path.slice(path.lastIndexOf('/') + 1);
