import type { Plugin } from 'esbuild';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';

type Gateway = typeof import('./gateway-process.ts');

const fromHere = (file: string): URL => new URL(file, import.meta.url);

/**
 * Bundles the gateway into one file and loads it. Loading its several hundred modules one by one, most of them drizzle's, takes a second
 * and 300 MB more.
 */
export async function loadGateway(): Promise<Gateway> {
  // A profile shall show the source files, so it gets the unbundled modules.
  if (process.execArgv.includes('--cpu-prof')) return import('./gateway-process.ts');
  const folder = await mkdtemp(path.join(tmpdir(), 'trialgate-gateway-'));
  const outfile = path.join(folder, 'gateway.mjs');
  try {
    await bundle(outfile);
    return await import(pathToFileURL(outfile).href);
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

async function bundle(outfile: string): Promise<void> {
  const { build, stop } = await import('esbuild');
  await build({
    entryPoints: [fileURLToPath(fromHere('./gateway-process.ts'))],
    outfile,
    bundle: true,
    platform: 'node',
    target: 'node24',
    format: 'esm',
    external: ['pg-native'],
    plugins: [shared],
    // The bundle finds files and packages relative to the folder of the gateway's modules.
    define: { 'import.meta.url': JSON.stringify(fromHere('../store/queries/migrate.ts').href) },
    banner: {
      js: `import { createRequire as requireFrom } from 'node:module'; const require = requireFrom(${JSON.stringify(import.meta.url)});`,
    },
    logLevel: 'silent',
  });
  await stop();
}

/** Keeps the error classes out of the bundle, so that `instanceof` works in the rest of this process. */
const shared: Plugin = {
  name: 'shared',
  setup(build) {
    build.onResolve({ filter: /\/errors\.ts$/ }, ({ path: file, resolveDir }) => {
      const resolved = path.join(resolveDir, file);
      return resolved === fileURLToPath(fromHere('../core/errors.ts'))
        ? { path: pathToFileURL(resolved).href, external: true }
        : undefined;
    });
  },
};
