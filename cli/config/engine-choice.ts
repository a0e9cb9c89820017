import { readFileSync, rmSync } from 'node:fs';
import { z } from 'zod';
import { writeAtomically } from '../files.ts';
import { homeFolders } from '../folders.ts';

/** `over` is the model that was configured when `trialgate engine use` chose `model`. */
const choice = z.object({ model: z.string().min(1), over: z.string() });

/**
 * Returns the model that `trialgate engine use` chose, or null if it chose none. A configured model that has changed since then is the newer
 * wish, so the choice ends.
 */
export function chosenModel(home: string, configured: string): string | null {
  let content: unknown;
  try {
    content = JSON.parse(readFileSync(homeFolders(home).engineChoice, 'utf8'));
  } catch {
    return null;
  }
  const { data } = choice.safeParse(content);
  return data?.over === configured ? data.model : null;
}

/** Makes later starts use `model` for as long as `over` stays the configured model. */
export function chooseModel(home: string, model: string, over: string): void {
  writeAtomically(homeFolders(home).engineChoice, `${JSON.stringify({ model, over }, null, 2)}\n`);
}

export function forgetChoice(home: string): void {
  rmSync(homeFolders(home).engineChoice, { force: true });
}
