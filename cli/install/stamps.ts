import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readFileSync, rmSync } from 'node:fs';
import path from 'node:path';
import { writeAtomically } from '../files.ts';
import { INSTALLS } from '../folders.ts';

/** A step with a stamp: the digest of the inputs of its last run. */
export type StampedStep = { name: string; inputs: unknown; makes: string };

const stampOf = (name: string): string => path.join(INSTALLS.stamps, name);

/** True when the step was run with these inputs and its result exists. */
export const isDone = (step: StampedStep): boolean => existsSync(step.makes) && wasRun(step);

/** True when the step was run with these inputs. An optional step may have made nothing. */
export function wasRun({ name, inputs }: StampedStep): boolean {
  try {
    return readFileSync(stampOf(name), 'utf8').trim() === digest(inputs);
  } catch {
    return false;
  }
}

export function markDone({ name, inputs }: StampedStep): void {
  mkdirSync(INSTALLS.stamps, { recursive: true });
  writeAtomically(stampOf(name), `${digest(inputs)}\n`);
}

export function forget(name: string): void {
  rmSync(stampOf(name), { force: true });
}

/** Set while packages are being written. If it is set when an install starts, a package may be written only in part. */
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
