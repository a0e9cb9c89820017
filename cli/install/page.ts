import { createHash } from 'node:crypto';
import { existsSync, globSync, readFileSync } from 'node:fs';
import { rename, rm } from 'node:fs/promises';
import path from 'node:path';
import { REPOSITORY } from '../../core/repository.ts';
import { INSTALLS } from '../folders.ts';
import { runLogged, type ReportProgress } from './run-step.ts';

const WEB = path.join(REPOSITORY, 'web');
const VITE = path.join(REPOSITORY, 'node_modules/vite/bin/vite.js');
const SOURCES = [
  'web/{index.html,vite.config.ts}',
  'web/src/**/*.*',
  'clients/typescript/client.ts',
  'package-lock.json',
];

/** The file of the built page that the gateway serves first. */
export const PAGE_INDEX = path.join(INSTALLS.page, 'index.html');

/** Returns the digest of what the page is built from, by file. */
export function pageSources(): Record<string, string> {
  const files = globSync(SOURCES, { cwd: REPOSITORY }).toSorted();
  const digest = (file: string): string =>
    createHash('sha256')
      .update(readFileSync(path.join(REPOSITORY, file)))
      .digest('hex');
  return Object.fromEntries(files.map((file) => [file, digest(file)]));
}

/** Builds the page on runs. Without it the gateway answers its address with how to build it. */
export async function buildPage(log: string, signal: AbortSignal, report: ReportProgress): Promise<void> {
  const later = 'until then the gateway has no page, and everything else works';
  if (!existsSync(VITE))
    return report(
      `the page is not built, because vite is not installed: run \`npm ci\`, then \`npm run page\`; ${later}`,
    );
  // It is built beside the old one, which stays when the build fails or is killed.
  const draft = `${INSTALLS.page}-next`;
  const built = await runLogged(log, [INSTALLS.node, VITE, 'build', WEB, '--outDir', draft, '--emptyOutDir'], {
    signal,
    // Another value, such as a shell's own `development`, would choose the slow parts of React.
    env: { ...process.env, NODE_ENV: 'production' },
  });
  if (built.code !== 0) {
    await rm(draft, { recursive: true, force: true });
    return report(`the page cannot be built (all output: ${log}): run \`npm run page\`; ${later}`);
  }
  await rm(INSTALLS.page, { recursive: true, force: true });
  await rename(draft, INSTALLS.page);
}
