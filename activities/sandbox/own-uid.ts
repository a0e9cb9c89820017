import { createHash } from 'node:crypto';
import { mkdir, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { SandboxError } from './errors.ts';
import { isolation, type Isolation } from './isolation.ts';
import { processTable } from './process-table.ts';
import { sandboxesFolder } from './sandboxes-folder.ts';

/** The range of systemd's dynamic users. It is below 65536, so that containers map it too. */
const FIRST = 61184;
const COUNT = 4336;

/**
 * Returns a user id that no other sandbox of this deployment has. Root gives each sandbox its own id, so that the limit on processes
 * counts only this sandbox, its folder is closed to other sandboxes, and its remaining files are found.
 */
export async function claimUid(home: string, name: string, given?: Isolation): Promise<number | null> {
  if (process.getuid?.() !== 0) return null;
  const folder = await claims(home);
  await mkdir(folder, { recursive: true, mode: 0o700 });
  const start = createHash('sha256').update(`${home}/${name}`).digest().readUInt32BE() % COUNT;
  // Without bubblewrap a sandbox is ended by its user id, so another deployment must not use the same id.
  const plain = (given ?? (await isolation())).kind !== 'bubblewrap';
  const busy = new Set(plain ? processTable().map((row) => row.uid) : []);
  for (let step = 0; step < COUNT; step += 1) {
    const uid = FIRST + ((start + step) % COUNT);
    if (!busy.has(uid) && (await claim(join(folder, String(uid)), name))) return uid;
  }
  throw new SandboxError(
    `no user id is free for a sandbox: all ${COUNT} are in use, so close sandboxes or run fewer trials on this host`,
  );
}

export async function releaseUid(home: string, uid: number | null): Promise<void> {
  if (uid !== null) await rm(join(await claims(home), String(uid)), { force: true });
}

const claims = async (home: string): Promise<string> => join(await sandboxesFolder(home), '.uids');

async function claim(file: string, name: string): Promise<boolean> {
  try {
    await writeFile(file, name, { flag: 'wx' });
    return true;
  } catch (error) {
    if (!(error instanceof Error) || !('code' in error) || error.code !== 'EEXIST') {
      // On a full disk the file is created but stays empty. It is removed, because otherwise its id would never be free again.
      await rm(file, { force: true });
      throw error;
    }
    return (await readFile(file, 'utf8').catch(() => null)) === name;
  }
}
