import { randomInt } from 'node:crypto';
import type { V1Container, V1NetworkPolicy, V1Pod, V1SecurityContext, V1Volume } from '@kubernetes/client-node';
import { DEFAULT_POD_IMAGE } from '../../../core/run-config/sandbox.ts';
import type { Limits } from '../limits.ts';
import type { KubernetesSetting } from './cluster.ts';

/** The name of the network policy of all sandboxes. */
export const POLICY = 'trialgate-sandboxes';
export const LABELS = { sandbox: 'trialgate.sandbox', home: 'trialgate.home' } as const;
/** The name of the sandbox, which is no valid label. */
export const NAME = 'trialgate.name';
export const PROGRAM = 'program';
export const HELPER = 'helper';
/** The folder with the script that starts the program, as the program sees it. */
export const LAUNCH = '/trialgate';
/** The folder in which the helper has all volumes. */
export const VOLUMES = '/sandbox';

/** The pods that the policy closes. */
export const EVERY_SANDBOX = { key: LABELS.sandbox, operator: 'Exists' };

/** Closes the pods of sandboxes: nothing in, nothing out. What a program may reach goes over the helper's `exec` connection. */
export const networkPolicy = (): V1NetworkPolicy => ({
  apiVersion: 'networking.k8s.io/v1',
  kind: 'NetworkPolicy',
  metadata: { name: POLICY },
  spec: {
    podSelector: { matchExpressions: [EVERY_SANDBOX] },
    policyTypes: ['Ingress', 'Egress'],
  },
});

/** A folder of the pod: of the sandbox's own, or with a copy of a folder of the worker's host. */
export type PodFolder = {
  /** The name of its volume, and of the folder in which the helper has it. */
  name: string;
  inside: string;
  writable: boolean;
};

export type PodRequest = {
  name: string;
  labels: Record<string, string>;
  sandbox: string;
  image: string;
  folders: PodFolder[];
  limits: Limits;
  /** The gateway's name, which must lead to the pod's own loopback; null when it has none. */
  hostName: string | null;
  /** Its programs' user. Another pod has another one, because a node counts processes by their user. */
  uid: number;
};

/** The pod has some time of its own for its start and for the copying of files. The node then ends one whose worker is dead. */
const SPARE_SECONDS = 1800;
const HELPER_MEMORY_MB = 256;
/** The disk space of a pod besides the sandbox's own: copies of folders of the host, output that the node keeps. */
const SPARE_DISK_MB = 2048;

/** Returns the pod of one run of a program. A Job would start a program again whose node was lost, so it is no Job. */
export function podOf(setting: KubernetesSetting, request: PodRequest): V1Pod {
  const { name, labels, sandbox, image, folders, limits, hostName, uid } = request;
  const { helper_image: helperImage, image: ofSetting } = setting;
  return {
    apiVersion: 'v1',
    kind: 'Pod',
    metadata: { name, labels, annotations: { [NAME]: sandbox } },
    spec: {
      restartPolicy: 'Never',
      activeDeadlineSeconds: Math.ceil(limits.seconds) + SPARE_SECONDS,
      terminationGracePeriodSeconds: 1,
      automountServiceAccountToken: false,
      enableServiceLinks: false,
      // Names are resolved by the worker, if the network allows any.
      dnsPolicy: 'None',
      dnsConfig: { nameservers: ['127.0.0.1'] },
      ...(hostName === null ? {} : { hostAliases: [{ ip: '127.0.0.1', hostnames: [hostName] }] }),
      securityContext: {
        runAsNonRoot: true,
        runAsUser: uid,
        runAsGroup: uid,
        fsGroup: uid,
        seccompProfile: { type: 'RuntimeDefault' },
      },
      ...(setting.user_namespaces ? { hostUsers: false } : {}),
      ...(setting.runtime_class === undefined ? {} : { runtimeClassName: setting.runtime_class }),
      ...(setting.node_selector === undefined ? {} : { nodeSelector: setting.node_selector }),
      ...(setting.image_pull_secrets === undefined
        ? {}
        : { imagePullSecrets: setting.image_pull_secrets.map((secret) => ({ name: secret })) }),
      containers: [program(image, folders, limits), helper(helperImage ?? ofSetting ?? DEFAULT_POD_IMAGE, folders)],
      volumes: volumes(folders, limits),
    },
  };
}

/**
 * Draws the user of a pod, which is no user of its node. A pod with a user namespace of its own has only the ids up to 65535, each of which is
 * another one on the node.
 */
export const drawUser = ({ user_namespaces: hasNamespace = false }: KubernetesSetting): number =>
  hasNamespace ? randomInt(1000, 65_534) : randomInt(2 ** 20, 2 ** 31 - 2);

const hardened = (): V1SecurityContext => ({
  allowPrivilegeEscalation: false,
  capabilities: { drop: ['ALL'] },
  privileged: false,
  readOnlyRootFilesystem: true,
});

function program(image: string, folders: PodFolder[], { memoryMb, cpus, storageMb }: Limits): V1Container {
  const most = {
    memory: `${Math.ceil(memoryMb)}Mi`,
    cpu: `${Math.max(1, Math.round(cpus * 1000))}m`,
    'ephemeral-storage': `${Math.ceil(storageMb) + SPARE_DISK_MB}Mi`,
  };
  return {
    name: PROGRAM,
    image,
    // The shell waits until its files are there and its output is read. As the first process it ends all others when it ends.
    command: ['/bin/sh', '-c', `read -r _; . ${LAUNCH}/start`],
    stdin: true,
    stdinOnce: true,
    resources: { requests: most, limits: most },
    securityContext: hardened(),
    volumeMounts: [
      ...folders.map(({ name, inside, writable }) => ({ name, mountPath: inside, readOnly: !writable })),
      { name: 'shm', mountPath: '/dev/shm' },
    ],
  };
}

function helper(image: string, folders: PodFolder[]): V1Container {
  return {
    name: HELPER,
    image,
    command: ['/bin/sh', '-c', 'sleep infinity & wait'],
    resources: {
      requests: { memory: `${HELPER_MEMORY_MB}Mi`, cpu: '50m', 'ephemeral-storage': '64Mi' },
      limits: { memory: `${HELPER_MEMORY_MB}Mi`, cpu: '1', 'ephemeral-storage': '64Mi' },
    },
    securityContext: hardened(),
    volumeMounts: folders.map(({ name }) => ({ name, mountPath: `${VOLUMES}/${name}` })),
  };
}

const volumes = (folders: PodFolder[], { memoryMb, storageMb }: Limits): V1Volume[] => [
  // The helper counts what programs write. The node counts too, and ends a pod at twice the limit.
  ...folders.map(({ name }) => ({ name, emptyDir: { sizeLimit: `${Math.ceil(storageMb) * 2 + SPARE_DISK_MB}Mi` } })),
  // The kernel counts files in memory as the program's memory.
  { name: 'shm', emptyDir: { medium: 'Memory', sizeLimit: `${Math.ceil(memoryMb)}Mi` } },
];
