import { TrialgateError } from '../../core/errors.ts';
import type { Command, SandboxBackend } from './backend.ts';
import { removeNamed } from './destroy-sandbox.ts';
import { emptySandbox, handOverAll, type Sandbox } from './empty-sandbox.ts';
import { explainProcess } from './explain-process.ts';
import { findOwned } from './find-owned.ts';
import type { Isolation } from './isolation.ts';
import type { LaunchSpec } from './launcher-process.ts';
import { launch } from './launcher.ts';
import { ownMounts, pathsOf } from './sandbox-paths.ts';
import { sandboxUser } from './sandbox-user.ts';

/** Sandboxes of this host's programs under bubblewrap, or in its lesser forms where it does not work (`Isolation`). */
export function bubblewrapBackend(host: Isolation): SandboxBackend {
  const isWrapped = host.kind === 'bubblewrap';
  const hasCgroup = host.cgroup !== null;
  const specOf = (sandbox: Sandbox, { forkServer, mounts, ...command }: Command): LaunchSpec => ({
    ...command,
    isolation: host,
    uid: sandboxUser(host, sandbox),
    mounts: [...ownMounts(sandbox, pathsOf(sandbox, host)), ...mounts],
    marker: sandbox.marker,
    root: sandbox.root,
    ...(forkServer && isWrapped ? { forkServer } : {}),
  });
  return {
    kind: 'bubblewrap',
    host,
    statement: host.statement,
    capabilities: {
      networks: isWrapped ? ['none', 'gateway', 'host'] : ['host'],
      mounts: isWrapped,
      images: false,
      forks: isWrapped,
      kernelLimits: { memory: hasCgroup, cpus: hasCgroup, processes: true, storage: false },
      snapshot: false,
      gpu: false,
    },
    pathsOf: (sandbox) => pathsOf(sandbox, host),
    pythonOf: () => host.python.executable,
    prepare: async (source) => {
      const what = 'name' in source ? `the image ${source.name}` : `the image of ${source.folder}`;
      throw new TrialgateError('bad_input', `${what}: this kind of sandbox runs no images: set \`sandbox: container\``);
    },
    start: async ({ home, name }) => {
      await removeNamed(home, name, { isolation: host });
      return emptySandbox(home, name, { isolation: host });
    },
    copyIn: handOverAll,
    explain: (sandbox, command) => explainProcess(specOf(sandbox, command)),
    run: (sandbox, command) => launch(specOf(sandbox, command)),
    copyOut: async () => {},
    destroy: (home, name) => removeNamed(home, name, { isolation: host }),
    find: (home) => findOwned(home, 'bubblewrap'),
  };
}
