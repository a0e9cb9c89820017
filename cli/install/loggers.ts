import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { TrialgateError } from '../../core/errors.ts';
import type { LoggerName } from '../../core/run-config/loggers.ts';
import { INSTALLS } from '../folders.ts';
import { installLocked, isInstalled } from './locked-folder.ts';
import { lockFile } from './locks.ts';
import { findPython } from './python.ts';

const LOCK = { python: lockFile('loggers') };

/** Installs the loggers' libraries into an environment of their own, unless it has them. */
export const installLoggers = (log: string, signal: AbortSignal): Promise<string> =>
  installLocked(INSTALLS.loggerLibraries, LOCK, { log, signal });

/**
 * Returns the Python that has a logger's library. CSV needs none.
 * @throws TrialgateError `missing_prerequisite` with the command that installs it
 */
export async function loggerPython(logger: LoggerName): Promise<string> {
  if (await isInstalled(INSTALLS.loggerLibraries, LOCK)) return join(INSTALLS.loggerLibraries, 'bin/python');
  if (logger === 'csv') return existsSync(INSTALLS.python) ? INSTALLS.python : findPython(undefined).path;
  throw new TrialgateError(
    'missing_prerequisite',
    `the library of the logger ${logger} is not installed: \`npx trialgate install --loggers\` installs it`,
  );
}
