/** Orders replicas by rendezvous hashing, so that a trial keeps its replica, and its cached prefix there, when others come and go. */
export function preference<T extends { url: string }>(trialId: string, replicas: readonly T[]): T[] {
  if (replicas.length < 2) return [...replicas];
  return replicas
    .map((replica) => ({ replica, weight: hash(`${trialId}\n${replica.url}`) }))
    .toSorted((a, b) => b.weight - a.weight)
    .map(({ replica }) => replica);
}

/** FNV-1a with a finalizer, without which texts that differ only in their last letters would order the same way. */
export function hash(text: string): number {
  let h = 0x811c9dc5;
  for (let i = 0; i < text.length; i++) h = Math.imul(h ^ text.charCodeAt(i), 0x01000193);
  h = Math.imul(h ^ (h >>> 16), 0x85ebca6b);
  h = Math.imul(h ^ (h >>> 13), 0xc2b2ae35);
  return (h ^ (h >>> 16)) >>> 0;
}
