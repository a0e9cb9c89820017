import { existsSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { INSTALLS } from '../folders.ts';

/** The locks of gpu-workers: for the two devices, for the tests, and those that have environments of their own: tools, TRL, loggers, mlflow's server. */
export const LOCKS = ['torch-cpu', 'cpu', 'cuda', 'dev', 'tools', 'trl', 'loggers', 'mlflow-server'] as const;
export type Lock = (typeof LOCKS)[number];

export const lockFile = (name: Lock): string => path.join(INSTALLS.gpuWorkers, `requirements-${name}.txt`);

/**
 * The arguments with which pip and uv install a lock. Each file must have a digest of the lock, dependencies that are not in the lock are
 * not installed, and no package is built, because a build runs code that is in no lock.
 */
export const FROM_LOCK = ['install', '--require-hashes', '--no-deps', '--only-binary', ':all:'];

/** Returns a file's text, or an empty string if it does not exist. */
export const content = (file: string): string => (existsSync(file) ? readFileSync(file, 'utf8') : '');
