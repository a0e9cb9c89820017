import { existsSync, statSync } from 'node:fs';
import path from 'node:path';
import { INSTALLS } from '../folders.ts';
import { fetchDebianFile } from './debian-package.ts';
import type { ReportProgress } from './run-step.ts';

const OWN = path.join(INSTALLS.tools, 'bwrap');

/** Returns the path of bubblewrap's program: the one on the PATH, else the one we downloaded, else null. */
export function findBubblewrap(): string | null {
  const folders = (process.env['PATH'] ?? '').split(':').filter(Boolean);
  const onPath = folders.map((folder) => path.join(folder, 'bwrap')).find((file) => statSync(file, { throwIfNoEntry: false })?.isFile());
  return onPath ?? (existsSync(OWN) ? OWN : null);
}

export const hasBubblewrap = (): boolean => findBubblewrap() !== null;

/** Puts Debian's program into our own folder. If this fails, agents run only with `--unsandboxed`, and a message says so. */
export async function installBubblewrap(log: string, signal: AbortSignal, report: ReportProgress): Promise<void> {
  if (hasBubblewrap()) return;
  if (await fetchDebianFile({ name: 'bubblewrap', file: 'usr/bin/bwrap', target: OWN }, log, signal)) return;
  report('bubblewrap could not be downloaded: install it yourself; without it, agents run only with --unsandboxed');
}
