import { findBubblewrap, OWN_BUBBLEWRAP } from '../../activities/sandbox/bubblewrap.ts';
import { fetchDebianFile } from './debian-package.ts';
import type { ReportProgress } from './run-step.ts';

export const hasBubblewrap = (): boolean => findBubblewrap() !== null;

/** Puts Debian's program into our own folder. If this fails, agents run only with `--unsandboxed`, and a message says so. */
export async function installBubblewrap(log: string, signal: AbortSignal, report: ReportProgress): Promise<void> {
  if (hasBubblewrap()) return;
  if (await fetchDebianFile({ name: 'bubblewrap', file: 'usr/bin/bwrap', target: OWN_BUBBLEWRAP }, log, signal)) return;
  report('bubblewrap could not be downloaded: install it yourself; without it, agents run only with --unsandboxed');
}
