import { dirname, isAbsolute } from 'node:path';
import type { Mount } from './bubblewrap.ts';
import type { Sandbox } from './empty-sandbox.ts';
import type { Isolation } from './isolation.ts';

/** The paths of a sandbox's own folders, as its processes see them. */
export type SandboxPaths = { work: string; home: string; tmp: string; logs: string };

/** Under bubblewrap every sandbox has the same paths. Otherwise its processes see those of the host. */
export function pathsOf({ work, agentHome, tmp, logs }: Sandbox, { kind }: Isolation): SandboxPaths {
  return kind === 'bubblewrap'
    ? { work: '/app', home: '/home/agent', tmp: '/tmp', logs: '/logs' }
    : { work, home: agentHome, tmp, logs };
}

/** Returns the mounts of a sandbox's own folders. Its processes may write to all of them. */
export function ownMounts(sandbox: Sandbox, paths: SandboxPaths): Mount[] {
  return [
    { host: sandbox.work, inside: paths.work, writable: true },
    { host: sandbox.agentHome, inside: paths.home, writable: true },
    { host: sandbox.tmp, inside: paths.tmp, writable: true },
    { host: sandbox.shm, inside: '/dev/shm', writable: true },
    { host: sandbox.logs, inside: paths.logs, writable: true },
  ];
}

/** The environment of every sandboxed process, before its own variables. Nothing of the host's environment is passed on. */
export function baseEnvironment(python: string, { home, tmp }: SandboxPaths): { PATH: string; [name: string]: string } {
  const path = [...(isAbsolute(python) ? [dirname(python)] : []), '/usr/local/bin', '/usr/bin', '/bin'];
  return {
    PATH: [...new Set(path)].join(':'),
    HOME: home,
    TMPDIR: tmp,
    LANG: 'C.UTF-8',
    PYTHONDONTWRITEBYTECODE: '1',
  };
}
