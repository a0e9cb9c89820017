import { TrialgateError } from '../../core/errors.ts';
import { lookForPython } from '../prerequisites.mjs';

export type Python = { path: string; version: string };

/**
 * Returns a Python from 3.11 to 3.13 that can make virtual environments: the named one, else the first on the PATH.
 * @throws TrialgateError `missing_prerequisite` that says what is missing.
 */
export function findPython(named: string | undefined): Python {
  const found = lookForPython(named);
  if (found.lack !== null) throw new TrialgateError('missing_prerequisite', found.lack);
  return found;
}
