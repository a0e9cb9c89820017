import { httpUrl } from '../../../../core/reachable-at.ts';
import { sleep } from '../../../../core/sleep.ts';
import type { FoundEngine } from '../../../../store/queries/register-replicas.ts';
import { messageOf, type Discovery, type Finding } from './discovery.ts';
import { ApiServer, Refused, type KubernetesOptions, type Pod } from './kubernetes-api.ts';

const PAUSE_MS = 200;
const LONGEST_PAUSE_MS = 30_000;

/** Finds the engines in the pods of Kubernetes that have certain labels. */
export const kubernetes: Discovery = {
  foundBy: 'kubernetes',
  watch: ({ enginesKubernetes: options }, signal) => (options === undefined ? null : watchPods(options, signal)),
};

/**
 * Lists the pods, then watches what changes. A watch that ended, or whose connection was cut, goes on after its last event. If that fails,
 * as when the server has forgotten that event (410), the pods are listed anew.
 */
async function* watchPods(options: KubernetesOptions, signal: AbortSignal): AsyncGenerator<Finding> {
  const pods = new Map<string, Pod>();
  let version: string | null = null;
  let failures = 0;
  const found = (): Finding => ({ engines: enginesIn([...pods.values()], options.port) });
  for (;;) {
    const server = new ApiServer(options, signal);
    try {
      if (version === null) {
        const list = await server.listPods();
        pods.clear();
        for (const pod of list.pods) pods.set(pod.metadata.uid, pod);
        version = list.version;
        yield found();
      }
      const events = await server.watchPods(version);
      failures = 0;
      for await (const event of events) {
        version = event.version;
        if (event.pod === null) continue;
        const { uid } = event.pod.metadata;
        if (event.isDeleted) pods.delete(uid);
        else pods.set(uid, event.pod);
        yield found();
      }
    } catch (error) {
      if (signal.aborted) return;
      version = null;
      if (!(error instanceof Refused && error.status === 410)) {
        failures += 1;
        yield { failure: `the pods with ${options.selector} cannot be watched: ${messageOf(error)}` };
      }
    } finally {
      await server.close();
    }
    await sleep(pauseAfter(failures), signal);
  }
}

/** Returns the engines of the pods that have an address. The pod that is ready decides where an old one had the same address. */
function enginesIn(pods: readonly Pod[], port: number): FoundEngine[] {
  const engines = new Map<string, boolean>();
  for (const { metadata, status } of pods) {
    const { podIP, phase, conditions } = status;
    if (!podIP || phase === 'Succeeded' || phase === 'Failed') continue;
    const isReady = conditions?.some(({ type, status: is }) => type === 'Ready' && is === 'True') ?? false;
    const url = httpUrl(podIP, port);
    const drains = !isReady || metadata.deletionTimestamp != null;
    engines.set(url, drains && (engines.get(url) ?? true));
  }
  return [...engines].map(([url, draining]) => ({ url, draining }));
}

/** Doubles with each failure. Half of it is random, so that gateways do not all ask a server that is back at once. */
function pauseAfter(failures: number): number {
  const longest = Math.min(PAUSE_MS * 2 ** failures, LONGEST_PAUSE_MS);
  return longest * (0.5 + Math.random() / 2);
}
