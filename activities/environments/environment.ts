import type { Mount } from '../sandbox/bubblewrap.ts';

/** Installed packages, as a program in a sandbox finds them. */
export type Environment = {
  /** The folders of the host that the program reads, under the same paths. */
  folders: string[];
  /** The folders that come first in its PATH. */
  path: string[];
  /** Its Python; null when it has none of its own. */
  python: string | null;
  /** Its `node_modules`; null when it has none. */
  nodeModules: string | null;
};

export const mountsOf = (environment: Environment | null): Mount[] =>
  (environment?.folders ?? []).map((folder) => ({ host: folder, inside: folder, writable: false }));

/** Returns a PATH in which the environment's commands come first. */
export const pathWith = (environment: Pick<Environment, 'path'> | null, path: string): string =>
  [...(environment?.path ?? []), path].join(':');

/** Returns both environments as one. */
export const joined = (environments: readonly Environment[]): Environment => ({
  folders: [...new Set(environments.flatMap(({ folders }) => folders))],
  path: environments.flatMap(({ path }) => path),
  python: environments.find(({ python }) => python !== null)?.python ?? null,
  nodeModules: environments.find(({ nodeModules }) => nodeModules !== null)?.nodeModules ?? null,
});
