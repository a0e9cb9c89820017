import { createHash, randomUUID } from 'node:crypto';
import { mkdir, open, rename, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';

/** Writes a batch's bytes to a file named by their SHA-256, whole or not at all. */
export async function storeBatch(folder: string, bytes: Uint8Array): Promise<{ sha256: string; path: string }> {
  const sha256 = createHash('sha256').update(bytes).digest('hex');
  const path = join(folder, `${sha256}.arrow`);
  if (
    await stat(path).then(
      () => true,
      () => false,
    )
  )
    return { sha256, path };
  await mkdir(folder, { recursive: true });
  const temporary = `${path}.${randomUUID()}.tmp`;
  const file = await open(temporary, 'wx');
  try {
    await file.writeFile(bytes);
    await file.sync();
    await rename(temporary, path);
  } catch (error) {
    await rm(temporary, { force: true });
    throw error;
  } finally {
    await file.close();
  }
  return { sha256, path };
}
