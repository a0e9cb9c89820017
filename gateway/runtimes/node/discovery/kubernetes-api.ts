import { readFile } from 'node:fs/promises';
import { Agent, request, type Dispatcher } from 'undici';
import { z } from 'zod';
import { hostInUrl } from '../../../../core/reachable-at.ts';

export type KubernetesOptions = {
  /** A label selector, such as `app=engine,tier!=test`. */
  selector: string;
  /** Absent: the namespace of the gateway's own pod. */
  namespace?: string | undefined;
  /** The port on which each pod's engine listens. */
  port: number;
  /** The address of an API server that wants no key, as behind `kubectl proxy`. Absent: that of the gateway's own cluster, which gets the key of its service account. */
  api?: string | undefined;
  /** The folder of the service account. */
  account?: string | undefined;
};

const ACCOUNT = '/var/run/secrets/kubernetes.io/serviceaccount';
const PAGE = 500;
/** The server ends a watch after this time, so that a connection which died unseen does not last. */
const WATCH_S = 60;
const ANSWER_MS = 15_000;

const condition = z.object({ type: z.string(), status: z.string() });
const pod = z.object({
  metadata: z.object({ uid: z.string(), resourceVersion: z.string(), deletionTimestamp: z.string().nullish() }),
  status: z
    .object({
      podIP: z.string().nullish(),
      phase: z.string().nullish(),
      conditions: z.array(condition).nullish(),
    })
    .default({}),
});
export type Pod = z.output<typeof pod>;

const podList = z.object({
  metadata: z.object({ resourceVersion: z.string(), continue: z.string().nullish() }),
  items: z.array(pod),
});
const bookmark = z.object({ metadata: z.object({ resourceVersion: z.string() }) });
const failure = z.object({ code: z.int().nullish(), message: z.string().nullish() });
const event = z.discriminatedUnion('type', [
  z.object({ type: z.enum(['ADDED', 'MODIFIED', 'DELETED']), object: pod }),
  z.object({ type: z.literal('BOOKMARK'), object: bookmark }),
  z.object({ type: z.literal('ERROR'), object: failure }),
]);

/** A change of a pod, or null for a bookmark, which only says how far the watch has come. */
export type PodEvent = { version: string; pod: Pod | null; isDeleted: boolean };

/** The API server refuses a request, or ends a watch with an error. */
export class Refused extends Error {
  readonly status: number;

  constructor(status: number, message: string) {
    const help =
      status === 401 || status === 403
        ? ': allow the service account to list and watch pods (docs/gateway.md, "Engines that come and go")'
        : '';
    super(`the API server answers ${status}: ${message}${help}`);
    this.status = status;
  }
}

/**
 * The requests for pods to the API server of Kubernetes, written out: the official client brings 83 MB in 68 packages for these two, and skips
 * events that it cannot read.
 */
export class ApiServer {
  readonly #options: KubernetesOptions;
  readonly #signal: AbortSignal;
  #agent: Agent | null = null;

  constructor(options: KubernetesOptions, signal: AbortSignal) {
    this.#options = options;
    this.#signal = signal;
  }

  async close(): Promise<void> {
    await this.#agent?.destroy();
  }

  async listPods(): Promise<{ version: string; pods: Pod[] }> {
    const pods: Pod[] = [];
    for (let from = ''; ;) {
      const body = await this.#get({ limit: `${PAGE}`, ...(from === '' ? {} : { continue: from }) });
      const { metadata, items } = podList.parse(await body.json());
      pods.push(...items);
      from = metadata.continue ?? '';
      if (from === '') return { version: metadata.resourceVersion, pods };
    }
  }

  /** Resolves when the server has accepted the watch. The events end when its time is up or the connection is cut. */
  async watchPods(version: string): Promise<AsyncIterable<PodEvent>> {
    const body = await this.#get({
      watch: 'true',
      allowWatchBookmarks: 'true',
      resourceVersion: version,
      timeoutSeconds: `${WATCH_S}`,
    });
    return eventsIn(body);
  }

  async #get(query: Record<string, string>): Promise<Dispatcher.ResponseData['body']> {
    const { selector, namespace, api, account = ACCOUNT } = this.#options;
    const inCluster = api === undefined ? await readAccount(account) : null;
    // The service account's key and its authority change while the gateway runs.
    this.#agent ??= new Agent({
      connect: { timeout: ANSWER_MS, ...(inCluster ? { ca: inCluster.ca } : {}) },
      headersTimeout: ANSWER_MS,
      bodyTimeout: (WATCH_S + 15) * 1000,
    });
    const within = namespace ?? inCluster?.namespace ?? 'default';
    const url = new URL(`${api ?? inCluster?.url}/api/v1/namespaces/${encodeURIComponent(within)}/pods`);
    url.search = `${new URLSearchParams({ labelSelector: selector, ...query })}`;
    const { statusCode, body } = await request(url, {
      dispatcher: this.#agent,
      headers: { accept: 'application/json', ...(inCluster ? { authorization: `Bearer ${inCluster.token}` } : {}) },
      signal: this.#signal,
    });
    if (statusCode === 200) return body;
    const text = await body.text();
    throw new Refused(statusCode, reasonIn(text));
  }
}

function reasonIn(text: string): string {
  try {
    return failure.parse(JSON.parse(text)).message ?? text;
  } catch {
    return text.slice(0, 200);
  }
}

async function readAccount(folder: string) {
  const { KUBERNETES_SERVICE_HOST: host, KUBERNETES_SERVICE_PORT: port = '443' } = process.env;
  if (!host) throw new Error('the gateway runs in no pod: name the API server (--engines-kubernetes-api)');
  const read = async (name: string) => (await readFile(`${folder}/${name}`, 'utf8')).trim();
  const [token, ca, namespace] = await Promise.all([read('token'), read('ca.crt'), read('namespace')]);
  return { url: `https://${hostInUrl(host)}:${port}`, token, ca, namespace };
}

async function* eventsIn(body: AsyncIterable<Uint8Array>): AsyncGenerator<PodEvent> {
  for await (const line of linesIn(body)) {
    const { type, object } = event.parse(JSON.parse(line));
    if (type === 'ERROR') throw new Refused(object.code ?? 500, object.message ?? 'the watch failed');
    const { resourceVersion: version } = object.metadata;
    yield { version, pod: type === 'BOOKMARK' ? null : object, isDeleted: type === 'DELETED' };
  }
}

/** Yields the whole lines. A connection that is cut is an end like any other, and the beginning of a line before it counts for nothing. */
async function* linesIn(body: AsyncIterable<Uint8Array>): AsyncGenerator<string> {
  const decoder = new TextDecoder();
  let rest = '';
  const parts = body[Symbol.asyncIterator]();
  for (;;) {
    const part = await parts.next().catch(() => null);
    if (part === null || part.done === true) return;
    const lines = (rest + decoder.decode(part.value, { stream: true })).split('\n');
    rest = lines.pop() ?? '';
    yield* lines.filter((line) => line.trim() !== '');
  }
}
