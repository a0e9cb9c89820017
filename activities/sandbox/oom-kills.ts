import { readFile } from 'node:fs/promises';
import type { MemoryKills } from './cgroup.ts';

/** How many processes the kernel of this machine has killed for want of memory since it booted; 0 where it does not say. */
export async function countOomKills(): Promise<number> {
  const counters = await readFile('/proc/vmstat', 'utf8').catch(() => '');
  return Number(/^oom_kill (\d+)$/m.exec(counters)?.[1] ?? 0);
}

/**
 * Whether the machine, and not the sandbox's own limit, made the kernel kill one of its processes. The machine's counter
 * also counts what other sandboxes did to themselves, so it is evidence only where there are no control groups.
 */
export function wasMachineOutOfMemory({ oomKills, hitMemoryLimit }: MemoryKills, machine: { before: number; after: number }): boolean {
  return oomKills === null ? machine.after > machine.before : oomKills > 0 && !hitMemoryLimit;
}
