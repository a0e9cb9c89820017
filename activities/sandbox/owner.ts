import { mkdir, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { hostname } from 'node:os';
import { join } from 'node:path';
import { z } from 'zod';
import { SANDBOX_KINDS } from '../../core/run-config/sandbox.ts';
import { isRunning, startOf } from './process-table.ts';
import { sandboxesFolder } from './sandboxes-folder.ts';

/** The worker that made a sandbox. Another worker removes the sandbox only when this one is dead. */
const owner = z.object({
  host: z.string(),
  pid: z.int(),
  started: z.string(),
  uid: z.int().nullable(),
  /** Absent in the records of earlier releases, which had no other kind. */
  kind: z.enum(SANDBOX_KINDS).default('bubblewrap'),
  /** The context and the namespace of a sandbox's pods. */
  cluster: z.object({ context: z.string(), namespace: z.string() }).optional(),
});
export type Owner = z.output<typeof owner>;

/** The folder beside the sandboxes that has one file for each sandbox. */
export const OWNERS = '.owners';

const owners = async (home: string): Promise<string> => join(await sandboxesFolder(home), OWNERS);

/** Writes that this process has made a sandbox. */
export async function writeOwner(
  home: string,
  name: string,
  made: Pick<Owner, 'uid' | 'kind' | 'cluster'>,
): Promise<void> {
  const folder = await owners(home);
  await mkdir(folder, { recursive: true, mode: 0o700 });
  const me: Owner = { host: hostname(), pid: process.pid, started: startOf(process.pid) ?? '', ...made };
  await writeFile(join(folder, name), JSON.stringify(me));
}

export async function readOwner(home: string, name: string): Promise<Owner | null> {
  try {
    return owner.parse(JSON.parse(await readFile(join(await owners(home), name), 'utf8')));
  } catch {
    return null;
  }
}

export async function removeOwner(home: string, name: string): Promise<void> {
  await rm(join(await owners(home), name), { force: true });
}

export async function ownedNames(home: string): Promise<string[]> {
  return readdir(await owners(home)).catch(() => []);
}

/** Returns true when the worker is alive. A worker on another host counts as alive. */
export function isAlive({ host, pid, started }: Owner): boolean {
  return host !== hostname() || isRunning(pid, started);
}
