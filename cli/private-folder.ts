import { chmodSync, mkdirSync, readdirSync, statSync } from 'node:fs';
import path from 'node:path';

/** One of these in a folder shows that Trialgate keeps its things there. */
const OURS = ['secrets.json', 'state.json', 'stamps', 'temporal.db'];

/**
 * Makes the folder where it is not there, and closes it to other users (0700). A folder that was there before and holds
 * something else is left as it is: others may need it.
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
