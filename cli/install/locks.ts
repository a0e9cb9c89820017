import { existsSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { INSTALLS } from '../folders.ts';

/** The locks of gpu-workers: those of the two devices, of the tests, and of tools in an environment of their own. */
export const LOCKS = ['torch-cpu', 'cpu', 'cuda', 'dev', 'tools'] as const;
export type Lock = (typeof LOCKS)[number];

export const lockFile = (name: Lock): string => path.join(INSTALLS.gpuWorkers, `requirements-${name}.txt`);

/**
 * How pip and uv install a lock: each file must have a digest that the lock names, what the lock leaves out stays out, and no package is
 * built here, because a build runs code that no lock names.
 */
export const FROM_LOCK = ['install', '--require-hashes', '--no-deps', '--only-binary', ':all:'];

/** A file's text; none where it is missing. */
export const content = (file: string): string => (existsSync(file) ? readFileSync(file, 'utf8') : '');
