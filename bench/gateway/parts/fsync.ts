import { closeSync, fdatasyncSync, openSync, rmSync, statfsSync, writeSync } from 'node:fs';
import { join } from 'node:path';

const PAGE = Buffer.alloc(8192, 1);
const TMPFS = 0x01021994;

export type DiskSync = { medianMs: number; p99Ms: number; count: number; isMemory: boolean };

/**
 * Measures how long this disk takes to make 8 kB durable, as `pg_test_fsync` does for fdatasync (the packaged PostgreSQL lacks that
 * program), by writing repeatedly to the same place of a file.
 */
export function measureSync(folder: string, seconds: number): DiskSync {
  const file = join(folder, 'sync-test');
  const descriptor = openSync(file, 'w');
  const times: number[] = [];
  try {
    for (let i = 0; i < 256; i++) writeSync(descriptor, PAGE);
    fdatasyncSync(descriptor);
    const end = performance.now() + seconds * 1000;
    while (performance.now() < end) {
      const start = performance.now();
      writeSync(descriptor, PAGE, 0, PAGE.length, 0);
      fdatasyncSync(descriptor);
      times.push(performance.now() - start);
    }
  } finally {
    closeSync(descriptor);
    rmSync(file);
  }
  times.sort((a, b) => a - b);
  const at = (share: number): number => times[Math.floor(share * (times.length - 1))] ?? 0;
  return { medianMs: at(0.5), p99Ms: at(0.99), count: times.length, isMemory: statfsSync(folder).type === TMPFS };
}
