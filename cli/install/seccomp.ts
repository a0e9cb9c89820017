import { existsSync, renameSync } from 'node:fs';
import path from 'node:path';
import { INSTALLS, REPOSITORY } from '../folders.ts';
import { fetchDebianFile } from './debian-package.ts';
import { runLogged, type Tell } from './run-step.ts';

export const SECCOMP_COMPILER = path.join(REPOSITORY, 'activities/sandbox/seccomp_filter.py');
/** The path of podman's default profile, where podman or its libraries are installed. */
const SYSTEM_PROFILE = '/usr/share/containers/seccomp.json';
const OWN_PROFILE = path.join(INSTALLS.tools, 'seccomp.json');
const FILTER = path.join(INSTALLS.tools, 'seccomp.bpf');

/** Compiles podman's profile of system calls for sandboxes. If this fails, sandboxes have no filter, and the doctor reports it. */
export async function installSeccompFilter(log: string, signal: AbortSignal, tell: Tell): Promise<void> {
  const wanted = { name: 'golang-github-containers-common', file: SYSTEM_PROFILE.slice(1), target: OWN_PROFILE };
  const profile = existsSync(SYSTEM_PROFILE) ? SYSTEM_PROFILE : (await fetchDebianFile(wanted, log, signal)) ? OWN_PROFILE : null;
  if (!profile) return tell('no seccomp profile was found or downloaded. Install podman or containers-common; until then sandboxes have no filter of system calls');
  const draft = `${FILTER}.${process.pid}.tmp`;
  const compiled = await runLogged(log, [INSTALLS.python, SECCOMP_COMPILER, profile, draft], { signal });
  if (compiled.code === 0) renameSync(draft, FILTER);
  else tell('the seccomp profile cannot be compiled (is libseccomp2 installed?): sandboxes have no filter of system calls');
}
