import { chmodSync, mkdirSync, readdirSync, statSync } from 'node:fs';
import path from 'node:path';

/** A folder with one of these entries belongs to Trialgate. */
const OURS = ['secrets.json', 'state.json', 'stamps', 'temporal.db'];

/**
 * Creates the folder if it does not exist, and closes it to other users (0700). An older folder that contains
 * something else stays as it is, because others may need it.
 */
export function makePrivate(folder: string): void {
  mkdirSync(path.dirname(folder), { recursive: true });
  mkdirSync(folder, { recursive: true, mode: 0o700 });
  if (!isOpenToOthers(folder) || statSync(folder).uid !== process.getuid?.()) return;
  const entries = readdirSync(folder);
  if (entries.length === 0 || OURS.some((name) => entries.includes(name))) chmodSync(folder, 0o700);
}

export function isOpenToOthers(folder: string): boolean {
  return ((statSync(folder, { throwIfNoEntry: false })?.mode ?? 0) & 0o077) !== 0;
}
