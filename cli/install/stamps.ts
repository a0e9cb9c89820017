import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readFileSync, rmSync } from 'node:fs';
import path from 'node:path';
import { writeAtomically } from '../files.ts';
import { INSTALLS } from '../folders.ts';

/** A step's stamp is the digest of what it was last run with. */
export type Stamped = { name: string; inputs: unknown; makes: string };

const stampOf = (name: string): string => path.join(INSTALLS.stamps, name);

/** Returns whether the step was run with these inputs and what it makes is there. */
export const isDone = (step: Stamped): boolean => existsSync(step.makes) && wasRun(step);

/** Returns whether the step was run with these inputs. An optional step may have made nothing. */
export function wasRun({ name, inputs }: Stamped): boolean {
  try {
    return readFileSync(stampOf(name), 'utf8').trim() === digest(inputs);
  } catch {
    return false;
  }
}

export function markDone({ name, inputs }: Stamped): void {
  mkdirSync(INSTALLS.stamps, { recursive: true });
  writeAtomically(stampOf(name), `${digest(inputs)}\n`);
}

export function forget(name: string): void {
  rmSync(stampOf(name), { force: true });
}

/** Set while packages are being written: found at the start of an install, the environment may be half a package short. */
export const torn = {
  path: () => stampOf('being-written'),
  is: () => existsSync(stampOf('being-written')),
  set() {
    mkdirSync(INSTALLS.stamps, { recursive: true });
    writeAtomically(stampOf('being-written'), '');
  },
  clear: () => forget('being-written'),
};

const digest = (inputs: unknown): string => createHash('sha256').update(JSON.stringify(inputs)).digest('hex');
