import { join } from 'node:path';
import { TrialgateError } from '../../../core/errors.ts';
import type { SandboxSetting } from '../../../core/run-config/sandbox.ts';
import type { SandboxBackend } from '../backend.ts';
import { bubblewrapBackend } from '../bubblewrap-backend.ts';
import { removeNamed } from '../destroy-sandbox.ts';
import { emptySandbox } from '../empty-sandbox.ts';
import { findOwned } from '../find-owned.ts';
import { isolation } from '../isolation.ts';
import { killSandbox } from '../kill-tree.ts';
import { markerOf } from '../names.ts';
import { readOwner } from '../owner.ts';
import { ownMounts, pathsOf } from '../sandbox-paths.ts';
import { limitsInView } from '../view.ts';
import { openCluster } from './cluster.ts';
import { isSocket, jobPrefix, nodeSocket, runJob } from './run-job.ts';

/** Sandboxes under bubblewrap on the nodes of a SLURM cluster. Their folders are on a file system that the worker and the nodes share. */
export async function slurmBackend(setting: Extract<SandboxSetting, { kind: 'slurm' }>): Promise<SandboxBackend> {
  const host = await isolation();
  const { bwrap } = host;
  if (host.kind !== 'bubblewrap' || bwrap === null)
    throw new TrialgateError(
      'missing_prerequisite',
      `sandbox: slurm: jobs run under bubblewrap, which does not work here (${host.trouble}): install it, here and on the nodes`,
    );
  const onThisHost = bubblewrapBackend(host);
  const cluster = await openCluster(setting);
  const kernelLimits = { ...cluster.holds, processes: true, storage: false };
  /** Ends what runs in a sandbox. Throws when a job may be left. */
  const end = async (home: string, name: string): Promise<void> => {
    const owner = await readOwner(home, name);
    if (owner === null) return;
    const marker = markerOf(home, name);
    await killSandbox(marker, owner.uid, host);
    // These are the jobs of a worker that is dead.
    await cluster.end(jobPrefix(marker));
  };
  const destroy = async (home: string, name: string): Promise<void> => {
    try {
      await end(home, name);
    } catch (error) {
      // Its folder, user id and record stay, so that the next sweep finds the sandbox.
      const why = error instanceof Error ? error.message : String(error);
      return console.error(`sandbox ${name} is not removed, because its jobs may be left: ${why}`);
    }
    await removeNamed(home, name, { isolation: host });
  };
  return {
    ...onThisHost,
    kind: 'slurm',
    statement: `Sandboxes run as jobs of ${cluster.name}, under bubblewrap: each sees the programs of its node and its own files.`,
    capabilities: {
      networks: ['none', 'gateway', 'host'],
      mounts: true,
      images: false,
      forks: false,
      kernelLimits,
      snapshot: false,
      gpu: false,
    },
    start: async ({ home, name }) => {
      await end(home, name);
      await removeNamed(home, name, { isolation: host });
      return emptySandbox(home, name, { isolation: host, kind: 'slurm' });
    },
    explain: async (sandbox, command) => {
      const view = await onThisHost.explain(sandbox, command);
      return {
        ...view,
        mounts: view.mounts.map((mount) =>
          isSocket(mount) ? { ...mount, host: join(sandbox.root, nodeSocket(mount)) } : mount,
        ),
        limits: limitsInView(command.limits, kernelLimits),
      };
    },
    run: (sandbox, command) => {
      const own = ownMounts(sandbox, pathsOf(sandbox, host));
      return runJob({ cluster, host: { ...host, bwrap }, setting, own }, sandbox, command);
    },
    destroy,
    find: (home) => findOwned(home, 'slurm'),
  };
}
