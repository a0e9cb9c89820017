import { opendirSync, readlinkSync, statSync } from 'node:fs';

/** The most descriptors of one sandbox that are read. A sandbox with more attacks its host: reading them would stop this process for all others. */
export const MAX_DESCRIPTORS = 8192;

/** The space that deleted files take while processes hold them open. A memfd is such a file too. */
export type DeletedFiles = { diskBytes: number; memoryBytes: number };

/** Returns null when the processes have more descriptors than `MAX_DESCRIPTORS`. Does not count the files of a process that hides its descriptors. */
export function deletedFiles(pids: readonly number[]): DeletedFiles | null {
  const files = new Map<string, { bytes: number; isMemory: boolean }>();
  let seen = 0;
  for (const pid of pids) {
    for (const descriptor of descriptorsOf(pid)) {
      if (++seen > MAX_DESCRIPTORS) return null;
      // This follows the link even if the file's path is too long to be read.
      const found = statIfThere(descriptor);
      if (!found?.isFile() || found.nlink > 0) continue;
      const key = `${found.dev}:${found.ino}`;
      if (!files.has(key)) files.set(key, { bytes: found.blocks * 512, isMemory: isMemfd(descriptor) });
    }
  }
  const sum = (isMemory: boolean): number =>
    [...files.values()].filter((file) => file.isMemory === isMemory).reduce((total, { bytes }) => total + bytes, 0);
  return { diskBytes: sum(false), memoryBytes: sum(true) };
}

function* descriptorsOf(pid: number): Generator<string> {
  const path = `/proc/${pid}/fd`;
  try {
    using folder = opendirSync(path);
    for (let entry = folder.readSync(); entry; entry = folder.readSync()) yield `${path}/${entry.name}`;
  } catch {
    // The process has ended, or it hides its descriptors.
  }
}

/** Returns null when the process has closed the descriptor since. */
function statIfThere(descriptor: string) {
  try {
    return statSync(descriptor);
  } catch {
    return null;
  }
}

function isMemfd(descriptor: string): boolean {
  try {
    return readlinkSync(descriptor).startsWith('/memfd:');
  } catch {
    return false;
  }
}
