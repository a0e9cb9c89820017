import { readFile } from 'node:fs/promises';
import type { MemoryKills } from './cgroup.ts';

/** Returns the number of processes that this machine's kernel has killed for lack of memory since boot; 0 if the kernel does not report it. */
export async function countOomKills(): Promise<number> {
  const counters = await readFile('/proc/vmstat', 'utf8').catch(() => '');
  return Number(/^oom_kill (\d+)$/m.exec(counters)?.[1] ?? 0);
}

/**
 * Returns true when the machine, and not the sandbox's own limit, made the kernel kill one of its processes. The machine's counter also
 * includes kills that other sandboxes caused themselves, so it is evidence only where there are no control groups.
 */
export function wasMachineOutOfMemory(
  { oomKills, hitMemoryLimit }: MemoryKills,
  machine: { before: number; after: number },
): boolean {
  return oomKills === null ? machine.after > machine.before : oomKills > 0 && !hitMemoryLimit;
}
