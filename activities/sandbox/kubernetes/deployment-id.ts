import { createHash, randomUUID } from 'node:crypto';
import { link, mkdir, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { hostWork } from '../errors.ts';

const FILE = 'deployment-id';

/**
 * Returns the id of a deployment, which is drawn at random once and kept in its folder. Hosts whose folders have the same path may share a
 * namespace of a cluster, and one must not remove the other's pods.
 * @throws SandboxError when the folder cannot be written
 */
export async function deploymentId(home: string): Promise<string> {
  const file = join(home, FILE);
  return hostWork(`the id of the deployment in ${file}`, async () => {
    const before = await readFile(file, 'utf8').catch(notThere);
    if (before !== null) return before.trim();
    const draft = `${file}.${randomUUID()}`;
    await mkdir(home, { recursive: true });
    await writeFile(draft, `${randomUUID()}\n`);
    try {
      // Another process may have drawn one meanwhile. A link never replaces a file, and is seen only when it is whole.
      await link(draft, file).catch((error: NodeJS.ErrnoException) => {
        if (error.code !== 'EEXIST') throw error;
      });
    } finally {
      await rm(draft, { force: true });
    }
    return (await readFile(file, 'utf8')).trim();
  });
}

function notThere(error: NodeJS.ErrnoException): null {
  if (error.code === 'ENOENT') return null;
  throw error;
}

/** Returns the label by which the pods of a sandbox are found. Its marker has characters that a label may not have. */
export const sandboxLabel = (deployment: string, marker: string): string =>
  createHash('sha256').update(`${deployment} ${marker}`).digest('hex').slice(0, 32);
