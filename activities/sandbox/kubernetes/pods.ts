import type { V1ContainerStateTerminated, V1ContainerStatus, V1Pod } from '@kubernetes/client-node';
import { setTimeout as sleep } from 'node:timers/promises';
import { SandboxError } from '../errors.ts';
import { answered, statusOf, type Cluster } from './cluster.ts';
import { PROGRAM } from './manifests.ts';

const POLL_MS = 200;
/** Many pods that wait for a node must not keep the API server busy. */
const MOST_POLL_MS = 2000;
/** A pod that is not deleted after this time is on a node that does not answer. */
const DELETION_MS = 60_000;
/** The time for a node, its images and the pod's start. */
const START_MS = 300_000;

/** Returns the pod; null when there is none. */
export async function readPod({ core, namespace }: Cluster, name: string): Promise<V1Pod | null> {
  return answered(core.readNamespacedPod({ namespace, name }), 'get pods').catch((error: unknown) => {
    if (statusOf(error) === 404) return null;
    throw error;
  });
}

/** An image that no later try finds, or that cannot be started. `isProgram`: it is that of the program, not the helper's. */
export class WrongImageError extends SandboxError {
  readonly isProgram: boolean;
  constructor(message: string, isProgram: boolean) {
    super(message);
    this.name = 'WrongImageError';
    this.isProgram = isProgram;
  }
}

/** The reasons for which no later try finds the image. */
const WRONG_IMAGE_REASONS = new Set(['InvalidImageName', 'ErrImageNeverPull']);
const PULL_REASONS = new Set(['ErrImagePull', 'ImagePullBackOff']);
const NOT_FOUND = /not found|code = NotFound|manifest unknown|name unknown|no such image/i;
/** Matches messages about a registry that could not be reached. It may be reached later. */
const NOT_REACHED = /no such host|dial tcp|timeout|timed out|connection refused|network is unreachable/i;

/** The reasons and the exit codes of containers whose first program could not be started. */
const START_REASONS = new Set(['StartError', 'ContainerCannotRun']);
const START_EXITS = new Set([126, 127, 128]);

/** Returns true when the node has said that it will never start a container, because of its image. */
function isHopeless({ state }: V1ContainerStatus): boolean {
  if (state?.terminated)
    return START_REASONS.has(state.terminated.reason ?? '') || START_EXITS.has(state.terminated.exitCode);
  const { reason = '', message = '' } = state?.waiting ?? {};
  if (WRONG_IMAGE_REASONS.has(reason)) return true;
  return PULL_REASONS.has(reason) && NOT_FOUND.test(message) && !NOT_REACHED.test(message);
}

/**
 * Makes a pod. It waits for the answer even when its caller does not any more, because a pod that is made later would be left.
 * @throws SandboxError when the API server refuses; the signal's reason on abort
 */
export async function createPod({ core, namespace }: Cluster, body: V1Pod, signal: AbortSignal): Promise<void> {
  signal.throwIfAborted();
  await answered(core.createNamespacedPod({ namespace, body }), 'create pods');
  signal.throwIfAborted();
}

/**
 * Returns when all containers of a pod run.
 * @throws SandboxError when they do not start, WrongImageError when their image is why; the signal's reason on abort
 */
export async function podStarted(cluster: Cluster, name: string, signal: AbortSignal): Promise<void> {
  const begin = performance.now();
  for (let pause = POLL_MS; ; pause = Math.min(1.2 * pause, MOST_POLL_MS)) {
    const pod = await readPod(cluster, name);
    signal.throwIfAborted();
    const phase = pod?.status?.phase;
    const containers = pod?.status?.containerStatuses ?? [];
    if (containers.length > 0 && containers.every(({ state }) => state?.running)) return;
    if (pod === null) throw new SandboxError(`the pod ${name} ended before its program: it was deleted`);
    const hopeless = containers.find(isHopeless);
    if (hopeless) throw new WrongImageError(`the pod ${name} cannot start: ${why(pod)}`, hopeless.name === PROGRAM);
    // The program waits for its files, and the helper for its end, so none of them ends by itself.
    const isEnded = phase === 'Failed' || phase === 'Succeeded' || containers.some(({ state }) => state?.terminated);
    if (isEnded) throw new SandboxError(`the pod ${name} ended before its program: ${why(pod)}`);
    if (performance.now() - begin > START_MS)
      throw new SandboxError(`the pod ${name} did not start within ${START_MS / 1000} s: ${why(pod)}`);
    await sleep(pause, undefined, { signal });
  }
}

/** Says for people what a pod waits for, or why it ended. */
function why({ status }: V1Pod): string {
  const containers = (status?.containerStatuses ?? []).map(({ name, state }) => {
    const { reason, message } = state?.waiting ?? state?.terminated ?? {};
    return reason === undefined ? '' : `${name}: ${reason} ${message ?? ''}`.trim();
  });
  const conditions = (status?.conditions ?? [])
    .filter((condition) => condition.status === 'False')
    .map(({ reason, message }) => `${reason ?? ''} ${message ?? ''}`.trim());
  const whole = [status?.reason ?? '', status?.message ?? ''].join(' ').trim();
  return [whole, ...containers, ...conditions].filter(Boolean).join('; ') || 'no reason is given';
}

/** The end of a program's container, or of its pod; null when the pod is gone. */
export type End = {
  terminated: V1ContainerStateTerminated | null;
  /** The node's reason for ending the whole pod; null when only the program ended. */
  podReason: string | null;
  /** True when the program itself used more disk space than the pod may. */
  isOverDisk: boolean;
  /** For people. */
  message: string;
} | null;

/** Matches the node's message for a pod that used more disk space than its own limits allow. */
const OVER_DISK = /exceeds the (total )?limit|exceeded its local ephemeral storage limit/;
/** A node ends the containers of a pod before it says why. */
const REASON_MS = 3000;
const POLL_REASON_MS = 500;
/** The exit codes of processes that SIGKILL or SIGTERM ended. */
const SIGNALLED = new Set([137, 143]);

/**
 * Returns how the program of a pod has ended; undefined while it runs. `isKilled`: the worker itself has killed it, so nothing else is looked
 * for when a signal has ended it.
 */
export async function endOf(cluster: Cluster, pod: string, isKilled: boolean): Promise<End | undefined> {
  for (const begin = performance.now(); ; await sleep(POLL_REASON_MS)) {
    const end = seenEnd(await readPod(cluster, pod));
    const { terminated = null, podReason = null } = end ?? {};
    const isInDoubt =
      terminated !== null &&
      SIGNALLED.has(terminated.exitCode) &&
      terminated.reason !== 'OOMKilled' &&
      podReason === null;
    if (!isInDoubt || isKilled || performance.now() - begin > REASON_MS) return end;
  }
}

function seenEnd(pod: V1Pod | null): End | undefined {
  if (pod === null) return null;
  const { phase, reason, message, conditions = [], containerStatuses = [] } = pod.status ?? {};
  const terminated = containerStatuses.find(({ name }) => name === PROGRAM)?.state?.terminated ?? null;
  const disruption = conditions.find(({ type, status }) => type === 'DisruptionTarget' && status === 'True');
  const isDeleted = pod.metadata?.deletionTimestamp !== undefined;
  const podReason = disruption?.reason ?? reason ?? (isDeleted ? 'it was deleted' : null);
  const isEnded = terminated !== null || phase === 'Failed' || phase === 'Succeeded';
  if (!isEnded) return undefined;
  const isOverDisk = !disruption && reason === 'Evicted' && OVER_DISK.test(message ?? '');
  return { terminated, podReason, isOverDisk, message: `${isDeleted ? 'it was deleted; ' : ''}${why(pod)}` };
}

/**
 * Deletes a pod, and returns when the node has said that its containers are dead. `isEnded`: the program is dead, so nothing is waited for.
 * @throws SandboxError when the node does not say so
 */
export async function deletePod(cluster: Cluster, name: string, isEnded = false): Promise<void> {
  const { core, namespace } = cluster;
  const grace = isEnded ? 0 : 1;
  await answered(core.deleteNamespacedPod({ namespace, name, gracePeriodSeconds: grace }), 'delete pods').catch(
    (error: unknown) => {
      if (statusOf(error) !== 404) throw error;
    },
  );
  if (isEnded) return;
  for (const begin = performance.now(); (await readPod(cluster, name)) !== null; await sleep(POLL_MS))
    if (performance.now() - begin > DELETION_MS)
      throw new SandboxError(
        `the pod ${name} is not deleted ${DELETION_MS / 1000} s later: its node does not say that its programs have ended`,
      );
}

/** Returns the names of the pods with a label. */
export async function podsWith({ core, namespace }: Cluster, label: string, value: string): Promise<string[]> {
  const list = core.listNamespacedPod({ namespace, labelSelector: `${label}=${value}` });
  return (await answered(list, 'list pods')).items.flatMap(({ metadata }) => metadata?.name ?? []);
}
