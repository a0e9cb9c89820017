import { closeSync, fsyncSync, openSync, renameSync, writeSync } from 'node:fs';

/** Replaces `file` with one rename, so that a reader or a crash finds either the old content or the new one. */
export function writeAtomically(file: string, content: string, mode = 0o644): void {
  const draft = `${file}.${process.pid}.tmp`;
  const descriptor = openSync(draft, 'w', mode);
  try {
    writeSync(descriptor, content);
    fsyncSync(descriptor);
  } finally {
    closeSync(descriptor);
  }
  renameSync(draft, file);
}
