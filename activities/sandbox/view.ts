import type { Mount } from './bubblewrap.ts';
import { DESCRIPTORS, type Limits } from './limits.ts';
import { gatewayAddress, type Network } from './network.ts';

/** What a sandbox's process sees of its host. */
export type View = {
  /** A sentence about the user that the process is. */
  user: string;
  network: { kind: Network['kind']; reaches: string };
  /** The files of the host. There are no others. */
  mounts: Mount[];
  /** What the kernel or the engine makes for each sandbox, such as `/proc` and `/dev`. It has nothing of the host's files. */
  own: OwnFiles[];
  /** The whole environment. */
  env: Record<string, string>;
  limits: ViewedLimit[];
};

export type OwnFiles = { inside: string; what: string };

export type ViewedLimit = {
  name: string;
  value: string;
  /** `kernel`: it cannot be passed. `counted`: the worker looks, and ends a sandbox that has passed it. */
  heldBy: 'kernel' | 'counted';
};

/** Returns the mounts without those that a later one covers, in the order of their places. */
export function visibleMounts(mounts: readonly Mount[]): Mount[] {
  const last = new Map(mounts.map((mount) => [mount.inside, mount]));
  return [...last.values()].toSorted((a, b) => (a.inside < b.inside ? -1 : 1));
}

type Held = { memory: boolean; cpus: boolean; processes: boolean; storage: boolean };

export function limitsInView(
  { seconds, memoryMb, outputBytes, processes, cpus, storageMb }: Limits,
  kernel: Held,
): ViewedLimit[] {
  const by = (isKernel: boolean): ViewedLimit['heldBy'] => (isKernel ? 'kernel' : 'counted');
  return [
    { name: 'time', value: `${seconds} s`, heldBy: 'counted' },
    { name: 'memory', value: `${memoryMb} MiB`, heldBy: by(kernel.memory) },
    { name: 'processor', value: `${cpus} cores`, heldBy: by(kernel.cpus) },
    { name: 'processes', value: String(processes), heldBy: by(kernel.processes) },
    { name: 'disk', value: `${storageMb} MiB in all`, heldBy: by(kernel.storage) },
    { name: 'one file', value: `${storageMb} MiB`, heldBy: 'kernel' },
    { name: 'open files of a process', value: String(DESCRIPTORS), heldBy: 'kernel' },
    { name: 'output', value: `${outputBytes} bytes`, heldBy: 'counted' },
  ];
}

export function networkInView(network: Network, relay: string): View['network'] {
  if (network.kind === 'none') return { kind: 'none', reaches: 'nothing' };
  if (network.kind === 'host') return { kind: 'host', reaches: 'all that this host reaches' };
  const gateway =
    network.kind === 'gateway' ? [`the gateway ${network.url} at ${gatewayAddress(network.url).insideUrl}`] : [];
  const hosts = network.hosts?.length ? [`${network.hosts.join(', ')} through the egress proxy`] : [];
  return { kind: network.kind, reaches: `${[...gateway, ...hosts].join(' and ')}, by ${relay}, and nothing else` };
}
