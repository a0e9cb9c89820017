import { readFileSync, rmSync } from 'node:fs';
import { z } from 'zod';
import { writeAtomically } from '../files.ts';
import { homeFolders } from '../folders.ts';

/** `over` is the model that was configured where the deployment was started when `trialgate engine use` chose `model`. */
const choice = z.object({ model: z.string().min(1), over: z.string().nullable() });

/**
 * Returns the model that `trialgate engine use` chose, or null if it chose none. Another configured model is the newer wish, so it ends the
 * choice; the default (null) is no wish.
 */
export function chosenModel(home: string, configured: string | null): string | null {
  const data = readChoice(home);
  return data && (configured === null || configured === data.over) ? data.model : null;
}

/** Makes later starts use `model` until a model other than `over` is configured. */
export function chooseModel(home: string, model: string, over: string | null): void {
  writeAtomically(homeFolders(home).engineChoice, `${JSON.stringify({ model, over }, null, 2)}\n`);
}

/** Ends a choice of another model than the one with which the deployment starts. */
export function endOtherChoice(home: string, model: string): void {
  if (readChoice(home)?.model !== model) rmSync(homeFolders(home).engineChoice, { force: true });
}

function readChoice(home: string): z.output<typeof choice> | null {
  try {
    return choice.parse(JSON.parse(readFileSync(homeFolders(home).engineChoice, 'utf8')));
  } catch {
    return null;
  }
}
