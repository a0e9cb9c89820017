import type { SandboxBackend } from '../backend.ts';
import { removeNamed } from '../destroy-sandbox.ts';
import { emptySandbox, handOverAll, type Sandbox } from '../empty-sandbox.ts';
import { findOwned } from '../find-owned.ts';
import { isolation } from '../isolation.ts';
import { killSandbox } from '../kill-tree.ts';
import { markerOf } from '../names.ts';
import { readOwner } from '../owner.ts';
import type { SandboxPaths } from '../sandbox-paths.ts';
import { messageOf, openCluster, type KubernetesSetting } from './cluster.ts';
import { deploymentId, sandboxLabel } from './deployment-id.ts';
import { explainPod } from './explain-pod.ts';
import { prepareImage } from './images.ts';
import { LABELS } from './manifests.ts';
import { notBuilt } from './not-built.ts';
import { deletePod, podsWith } from './pods.ts';
import { runPod, type Place } from './run-pod.ts';

const KERNEL_LIMITS = { memory: true, cpus: true, processes: true, storage: false };

/** Sandboxes in pods of a Kubernetes cluster. Their folders are on the worker's host, and each run of a program gets copies of them. */
export async function kubernetesBackend(
  setting: KubernetesSetting,
  opening: { signal?: AbortSignal | undefined; onlyRemoves?: boolean } = {},
): Promise<SandboxBackend> {
  const cluster = await openCluster(setting, opening);
  const { context, namespace } = cluster;
  const host = await isolation();
  /** Ends what runs in a sandbox. Throws when a pod may be left. */
  const end = async (home: string, name: string): Promise<void> => {
    const marker = markerOf(home, name);
    await killSandbox(marker, (await readOwner(home, name))?.uid ?? null, host);
    // A worker that died has left these pods.
    const label = sandboxLabel(await deploymentId(home), marker);
    for (const pod of await podsWith(cluster, LABELS.sandbox, label)) await deletePod(cluster, pod);
  };
  const placeOf = (sandbox: Sandbox): Place => ({ cluster, host, setting, paths: pathsOf(sandbox) });
  return {
    kind: 'kubernetes',
    host,
    statement: `Sandboxes run in pods of ${cluster.name}, in the namespace ${cluster.namespace}: each sees its image and its own files. Before each program starts, its pod tries to reach the cluster's API, which its network policy forbids.`,
    capabilities: {
      networks: ['none', 'gateway'],
      mounts: true,
      images: true,
      forks: false,
      kernelLimits: KERNEL_LIMITS,
      snapshot: false,
      gpu: false,
    },
    pathsOf,
    pythonOf: () => 'python3',
    prepare: (source, options) => {
      if ('name' in source) return prepareImage({ cluster, setting }, source.name, options);
      throw notBuilt(source.folder);
    },
    start: async ({ home, name, image }) => {
      await end(home, name);
      await removeNamed(home, name, { isolation: host });
      return emptySandbox(home, name, { isolation: host, kind: 'kubernetes', image, cluster: { context, namespace } });
    },
    copyIn: handOverAll,
    explain: (sandbox, command) => Promise.resolve(explainPod(placeOf(sandbox), sandbox, command, KERNEL_LIMITS)),
    run: (sandbox, command) => runPod(placeOf(sandbox), sandbox, command),
    copyOut: async () => {},
    destroy: async (home, name) => {
      try {
        await end(home, name);
      } catch (error) {
        // The folder and the record stay, so that the next sweep finds the sandbox.
        return console.error(`sandbox ${name} is not removed, because its pods may be left: ${messageOf(error)}`);
      }
      await removeNamed(home, name, { isolation: host });
    },
    find: (home) => findOwned(home, 'kubernetes'),
  };
}

const pathsOf = ({ image }: Sandbox): SandboxPaths => ({
  work: image?.workdir ?? '/app',
  home: '/home/agent',
  tmp: '/tmp',
  logs: '/logs',
});
