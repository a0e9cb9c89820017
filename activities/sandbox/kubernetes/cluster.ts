import { ApiException, CoreV1Api, KubeConfig, NetworkingV1Api } from '@kubernetes/client-node';
import { isDeepStrictEqual } from 'node:util';
import { z } from 'zod';
import { TrialgateError } from '../../../core/errors.ts';
import { inTime } from '../../../core/in-time.ts';
import type { SandboxSetting } from '../../../core/run-config/sandbox.ts';
import { SandboxError } from '../errors.ts';
import { EVERY_SANDBOX, networkPolicy, POLICY } from './manifests.ts';

export type KubernetesSetting = Extract<SandboxSetting, { kind: 'kubernetes' }>;

export type Cluster = {
  config: KubeConfig;
  core: CoreV1Api;
  /** The name of the kubeconfig's context. */
  context: string;
  namespace: string;
  /** For people: the address of the API server. */
  name: string;
};

/** An API server that gives no answer in this time does not work. */
const ANSWER_MS = 30_000;
/** The network policy is looked for again after this time. */
const KNOWN_MS = 300_000;
const known = new Map<string, { until: number; cluster: Cluster }>();

/**
 * Connects to the cluster of the kubeconfig (KUBECONFIG, `~/.kube/config`, or the cluster in which this process runs), and makes the
 * network policy of sandboxes there if it is missing. `onlyRemoves`: no pod will be made, so no policy is.
 * @throws TrialgateError `missing_prerequisite`
 */
export async function openCluster(
  setting: KubernetesSetting,
  { signal, onlyRemoves = false }: { signal?: AbortSignal | undefined; onlyRemoves?: boolean } = {},
): Promise<Cluster> {
  const config = loadConfig(setting);
  const server = config.getCurrentCluster()?.server ?? '';
  const context = config.getContextObject(config.getCurrentContext());
  const namespace = setting.namespace ?? context?.namespace ?? 'default';
  const key = JSON.stringify([server, namespace, config.getCurrentContext()]);
  const before = known.get(key);
  if (before && before.until > performance.now()) return before.cluster;
  const current = config.getCurrentContext();
  const cluster: Cluster = { config, core: config.makeApiClient(CoreV1Api), context: current, namespace, name: server };
  if (onlyRemoves) return cluster;
  try {
    await ensurePolicy(config.makeApiClient(NetworkingV1Api), namespace, signal);
  } catch (error) {
    signal?.throwIfAborted();
    if (error instanceof TrialgateError && !(error instanceof SandboxError)) throw error;
    throw new TrialgateError('missing_prerequisite', `sandbox: kubernetes: ${messageOf(error)}`, { cause: error });
  }
  known.set(key, { until: performance.now() + KNOWN_MS, cluster });
  return cluster;
}

function loadConfig({ context }: KubernetesSetting): KubeConfig {
  const config = new KubeConfig();
  try {
    config.loadFromDefault();
    if (context !== undefined && config.getContextObject(context) === null)
      throw new Error(`there is no context ${JSON.stringify(context)}`);
    if (context !== undefined) config.setCurrentContext(context);
    const cluster = config.getCurrentCluster();
    // Without any file the client takes an API server at this address for granted.
    if (cluster === null || cluster.server === 'http://localhost:8080') throw new Error('it names no cluster');
    return config;
  } catch (error) {
    throw new TrialgateError(
      'missing_prerequisite',
      `sandbox: kubernetes: the kubeconfig cannot be used (${messageOf(error)}): set KUBECONFIG to its file, or run the worker in the cluster with a service account`,
      { cause: error },
    );
  }
}

/** The policy lets nothing in or out of the pods of sandboxes. */
async function ensurePolicy(api: NetworkingV1Api, namespace: string, signal?: AbortSignal): Promise<void> {
  const find = () =>
    answered(api.readNamespacedNetworkPolicy({ namespace, name: POLICY }), 'get networkpolicies', signal);
  const found = await find().catch(async (error: unknown) => {
    if (statusOf(error) !== 404) throw error;
    const made = answered(
      api.createNamespacedNetworkPolicy({ namespace, body: networkPolicy() }),
      'create networkpolicies',
      signal,
    );
    // Another worker may have made it meanwhile.
    return made.catch((refused: unknown) => (statusOf(refused) === 409 ? find() : Promise.reject(refused)));
  });
  const { podSelector, policyTypes = [], ingress = [], egress = [] } = found.spec ?? {};
  // An API server may leave out what is empty, or name it.
  const { matchExpressions = [], matchLabels = {} } = podSelector ?? {};
  const isOurs =
    Object.keys(matchLabels).length === 0 &&
    isDeepStrictEqual(
      matchExpressions.map(({ key, operator, values = [] }) => ({ key, operator, values })),
      [{ ...EVERY_SANDBOX, values: [] }],
    );
  if (!isOurs || policyTypes.length < 2 || ingress.length > 0 || egress.length > 0)
    throw new TrialgateError(
      'missing_prerequisite',
      `sandbox: kubernetes: the NetworkPolicy ${POLICY} in the namespace ${namespace} does not close the pods of sandboxes: delete it, so that it is made anew`,
    );
}

const refusal = z.object({ message: z.string() });

/**
 * Waits for the answer of the API server. `what` is the verb and the resource, as a role grants them.
 * @throws SandboxError when it refuses, or gives none in time
 */
export async function answered<T>(request: Promise<T>, what: string, signal?: AbortSignal): Promise<T> {
  try {
    return await inTime(request, ANSWER_MS, signal);
  } catch (error) {
    if (statusOf(error) === null && !signal?.aborted) known.clear();
    throw failure(error, what);
  }
}

export function failure(error: unknown, what: string): SandboxError {
  const isForbidden = [401, 403].includes(statusOf(error) ?? 0);
  const advice = isForbidden
    ? `: the worker's account must be allowed to ${what}: apply the role in docs/sandboxes.md#kubernetes`
    : '';
  return new SandboxError(`the Kubernetes API: ${what}: ${messageOf(error)}${advice}`, { cause: error });
}

/** Returns the HTTP status of a refusal; null when the error is no answer of the API server. */
export function statusOf(error: unknown): number | null {
  const cause = error instanceof SandboxError ? error.cause : error;
  if (cause instanceof ApiException) return cause.code;
  // The WebSocket client reports the status of a refused upgrade in its message alone.
  const upgrade = /^Unexpected server response: (\d+)$/.exec(cause instanceof Error ? cause.message : '');
  return upgrade ? Number(upgrade[1]) : null;
}

export function messageOf(error: unknown): string {
  if (!(error instanceof ApiException)) return (error instanceof Error ? error.message : String(error)).trim();
  const said = refusal.safeParse(parsedJson(error.body));
  return `${error.code} ${said.success ? said.data.message : ''}`.trim();
}

/** Returns the value of a JSON text; null when it is none. */
export function parsedJson(body: unknown): unknown {
  try {
    return typeof body === 'string' ? JSON.parse(body) : body;
  } catch {
    return null;
  }
}
