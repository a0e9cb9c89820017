import { existsSync, readFileSync, renameSync } from 'node:fs';
import path from 'node:path';
import { SECCOMP_FILTER } from '../../activities/sandbox/isolation.ts';
import { INSTALLS } from '../folders.ts';
import { REPOSITORY } from '../../core/repository.ts';
import { fetchDebianFile } from './debian-package.ts';
import { runLogged, type ReportProgress } from './run-step.ts';

export const SECCOMP_COMPILER = path.join(REPOSITORY, 'activities/sandbox/seccomp_filter.py');
/** The path of podman's default profile, where podman or its libraries are installed. */
const SYSTEM_PROFILE = '/usr/share/containers/seccomp.json';
const OWN_PROFILE = path.join(INSTALLS.tools, 'seccomp.json');

/** Returns the text of the system's profile, or null if there is none. When it changes, a new filter is made. */
export const systemProfile = (): string | null =>
  existsSync(SYSTEM_PROFILE) ? readFileSync(SYSTEM_PROFILE, 'utf8') : null;

/** Compiles podman's profile of system calls for sandboxes. If this fails, sandboxes have no filter, and the doctor reports it. */
export async function installSeccompFilter(log: string, signal: AbortSignal, report: ReportProgress): Promise<void> {
  const wanted = { name: 'golang-github-containers-common', file: SYSTEM_PROFILE.slice(1), target: OWN_PROFILE };
  const isOnSystem = existsSync(SYSTEM_PROFILE);
  if (!isOnSystem) await fetchDebianFile(wanted, log, signal);
  const profile = isOnSystem ? SYSTEM_PROFILE : existsSync(OWN_PROFILE) ? OWN_PROFILE : null;
  if (!profile)
    return report(
      'no seccomp profile was found or downloaded: install podman or containers-common, then run `npx trialgate install`; until then sandboxes have no filter of system calls',
    );
  const draft = `${SECCOMP_FILTER}.${process.pid}.tmp`;
  const compiled = await runLogged(log, [INSTALLS.python, SECCOMP_COMPILER, profile, draft], { signal });
  if (compiled.code === 0) renameSync(draft, SECCOMP_FILTER);
  else
    report(
      `the seccomp profile cannot be compiled (all output: ${log}): install libseccomp2, then run \`npx trialgate install\`; until then sandboxes have no filter of system calls`,
    );
}
