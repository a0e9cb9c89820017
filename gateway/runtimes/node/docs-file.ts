import { readFile } from 'node:fs/promises';
import { createRequire } from 'node:module';

export async function docsFile(name: string): Promise<Uint8Array<ArrayBuffer>> {
  return new Uint8Array(await readFile(createRequire(import.meta.url).resolve(`swagger-ui-dist/${name}`)));
}
