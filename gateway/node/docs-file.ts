import { readFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import type { DocsFile } from '../deps.ts';

const TYPES: Record<string, string> = { 'swagger-ui.css': 'text/css', 'swagger-ui-bundle.js': 'text/javascript' };

/** The files of Swagger UI's package that its page needs. */
export async function docsFile(name: string): Promise<DocsFile | null> {
  const type = Object.hasOwn(TYPES, name) ? TYPES[name] : undefined;
  if (type === undefined) return null;
  const path = createRequire(import.meta.url).resolve(`swagger-ui-dist/${name}`);
  return { type, bytes: new Uint8Array(await readFile(path)) };
}
