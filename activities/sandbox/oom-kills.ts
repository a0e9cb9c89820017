import { readFile } from 'node:fs/promises';

/** How many processes the kernel of this machine has killed for want of memory since it booted; 0 where it does not say. */
export async function countOomKills(): Promise<number> {
  const counters = await readFile('/proc/vmstat', 'utf8').catch(() => '');
  return Number(/^oom_kill (\d+)$/m.exec(counters)?.[1] ?? 0);
}
