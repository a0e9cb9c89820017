import { build } from 'esbuild';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import type { TestProject } from 'vitest/node';

declare module 'vitest' {
  interface ProvidedContext {
    /** Undefined if no setup has bundled it. Gateways then start the thread from its source, as shipped. */
    heavyThread: string | undefined;
  }
}

/** Only CommonJS code in a bundled module needs these. */
const REQUIRE =
  "import { createRequire as requireFrom } from 'node:module'; const require = requireFrom(import.meta.url);";

/** Bundles the heavy thread into one file. From 700 files it takes a second of processor time to start, in each of dozens of gateways. */
export default async function setup(project: TestProject): Promise<() => void> {
  const folder = mkdtempSync(path.join(tmpdir(), 'trialgate-thread-'));
  const remove = () => rmSync(folder, { recursive: true, force: true });
  const outfile = path.join(folder, 'heavy-thread.mjs');
  const entry = fileURLToPath(new URL('../../../gateway/runtimes/node/heavy-thread-main.ts', import.meta.url));
  process.once('exit', remove);
  await build({
    entryPoints: [entry],
    outfile,
    bundle: true,
    platform: 'node',
    format: 'esm',
    target: 'node24',
    external: ['pg-native'],
    banner: { js: REQUIRE },
    logLevel: 'error',
  });
  project.provide('heavyThread', pathToFileURL(outfile).href);
  return () => {
    process.off('exit', remove);
    remove();
  };
}
