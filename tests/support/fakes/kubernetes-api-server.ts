import type { IncomingMessage, ServerResponse } from 'node:http';
import { setImmediate } from 'node:timers/promises';
import { EngineServer, json } from './engine-server.ts';

type Labels = Record<string, string>;
type Pod = {
  name: string;
  labels?: Labels;
  ip?: string | null;
  ready?: boolean;
  phase?: string;
  terminating?: boolean;
};
type Stored = { uid: string; pod: Required<Pod>; version: number };
/** A pod before and after it. `before` is null when it was created, `now` when it was deleted. */
type Change = { version: number; before: Stored | null; now: Stored | null };
type Watch = {
  response: ServerResponse;
  selector: Labels;
  bookmarks: boolean;
  since: number;
  /** One line after the other. */
  sending: Promise<void>;
};

const NAMESPACE = 'serving';

/**
 * The routes of Kubernetes' API server for pods, as its documentation describes lists and watches: `resourceVersion`, pages, bookmarks, 410
 * for what it has forgotten. Each line of a watch comes in three parts, cut anywhere in its bytes.
 */
export class KubernetesApiServer extends EngineServer {
  /** Answers each request with this status in place of its own. */
  refuses: number | null = null;
  /** The bearer token that it wants. */
  token: string | null = null;
  /** The most pods of a page. */
  page = Infinity;
  /** Says that a version is forgotten by the status of the reply, not by an event of the watch. */
  saysGoneByStatus = false;
  /** The requests that it got: `list` or `watch VERSION`. */
  readonly asked: string[] = [];
  readonly #pods = new Map<string, Stored>();
  readonly #watches = new Set<Watch>();
  #changes: Change[] = [];
  #version = 100;
  #forgotten = 0;

  get watches(): number {
    return this.#watches.size;
  }

  /** Creates a pod or changes one. */
  apply(pod: Pod): void {
    const before = this.#pods.get(pod.name) ?? null;
    const now: Stored = {
      uid: before?.uid ?? `uid-of-${pod.name}-${this.#version}`,
      version: ++this.#version,
      pod: {
        labels: { app: 'engine' },
        ip: '10.0.0.1',
        ready: true,
        phase: 'Running',
        terminating: false,
        ...before?.pod,
        ...pod,
      },
    };
    this.#pods.set(pod.name, now);
    this.#note({ version: now.version, before, now });
  }

  delete(name: string): void {
    const before = this.#pods.get(name);
    if (!before) throw new Error(`there is no pod ${name}`);
    this.#pods.delete(name);
    const version = ++this.#version;
    this.#note({ version, before: { ...before, version }, now: null });
  }

  /** Forgets all changes up to now: a watch from an earlier version is gone. */
  forget(): void {
    this.#forgotten = ++this.#version;
    this.#changes = [];
  }

  /** Tells the watches how far they have come. */
  bookmark(): void {
    this.#version += 1;
    for (const watch of this.#watches)
      if (watch.bookmarks)
        send(watch, {
          type: 'BOOKMARK',
          object: { kind: 'Pod', apiVersion: 'v1', metadata: { resourceVersion: `${this.#version}` } },
        });
  }

  /** Cuts the connections of the watches, each in the middle of a line. */
  cut(): void {
    for (const { response } of this.#ended()) {
      response.write('{"type":"MODIFIED","object":{"metadata":{"uid":"uid-of');
      response.socket?.destroySoon();
    }
  }

  /** Ends the watches, as when their time is up. */
  end(): void {
    for (const { response } of this.#ended()) response.end();
  }

  /** Returns the watches, which get nothing more. */
  #ended(): Watch[] {
    const ended = [...this.#watches];
    this.#watches.clear();
    return ended;
  }

  protected override async respond(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { pathname, searchParams } = new URL(request.url ?? '', 'http://kubernetes');
    if (this.token !== null && request.headers.authorization !== `Bearer ${this.token}`)
      return status(response, 401, 'Unauthorized');
    if (this.refuses !== null) return status(response, this.refuses, 'pods is forbidden');
    if (pathname !== `/api/v1/namespaces/${NAMESPACE}/pods`) return status(response, 404, 'not found');
    const selector = selectorIn(searchParams.get('labelSelector') ?? '');
    return searchParams.get('watch') === 'true'
      ? this.#watch(searchParams, selector, response)
      : this.#list(searchParams, selector, response);
  }

  #list(query: URLSearchParams, selector: Labels, response: ServerResponse): void {
    this.asked.push('list');
    const from = Number(query.get('continue') ?? 0);
    const limit = Math.min(Number(query.get('limit') ?? Infinity), this.page);
    const matching = [...this.#pods.values()].filter((stored) => matches(stored, selector));
    const isLast = from + limit >= matching.length;
    json(response, {
      kind: 'PodList',
      apiVersion: 'v1',
      metadata: { resourceVersion: `${this.#version}`, ...(isLast ? {} : { continue: `${from + limit}` }) },
      items: matching.slice(from, from + limit).map(objectOf),
    });
  }

  #watch(query: URLSearchParams, selector: Labels, response: ServerResponse): void {
    const since = Number(query.get('resourceVersion'));
    this.asked.push(`watch ${since}`);
    if (since < this.#forgotten && this.saysGoneByStatus) return status(response, 410, 'too old resource version');
    response.writeHead(200, { 'content-type': 'application/json' }).flushHeaders();
    const bookmarks = query.get('allowWatchBookmarks') === 'true';
    const watch: Watch = { response, selector, bookmarks, since, sending: Promise.resolve() };
    if (since < this.#forgotten) {
      send(watch, { type: 'ERROR', object: statusOf(410, 'too old resource version') });
      void watch.sending.then(() => response.end());
      return;
    }
    this.#watches.add(watch);
    const timer = setTimeout(() => response.end(), Number(query.get('timeoutSeconds')) * 1000);
    response.on('close', () => {
      clearTimeout(timer);
      this.#watches.delete(watch);
    });
    for (const change of this.#changes) pass(watch, change);
  }

  #note(change: Change): void {
    this.#changes.push(change);
    for (const watch of this.#watches) pass(watch, change);
  }
}

/** Sends a change as the watch sees it: a pod that loses the labels is deleted there, one that gets them is added. */
function pass(watch: Watch, { version, before, now }: Change): void {
  if (version <= watch.since) return;
  const was = before !== null && matches(before, watch.selector);
  const is = now !== null && matches(now, watch.selector);
  if (is) send(watch, { type: was ? 'MODIFIED' : 'ADDED', object: objectOf(now) });
  else if (was) send(watch, { type: 'DELETED', object: objectOf({ ...before, version }) });
}

function send(watch: Watch, event: { type: string; object: unknown }): void {
  const bytes = Buffer.from(`${JSON.stringify(event)}\n`);
  watch.sending = sendAfter(watch.sending, watch.response, bytes);
}

async function sendAfter(before: Promise<void>, response: ServerResponse, bytes: Buffer): Promise<void> {
  await before;
  const cuts = [0, Math.floor(bytes.length / 3), bytes.length - 2, bytes.length];
  for (const [i, cut] of cuts.slice(1).entries()) {
    response.write(bytes.subarray(cuts[i], cut));
    await setImmediate();
  }
}

const selectorIn = (text: string): Labels =>
  Object.fromEntries(text.split(',').map((requirement) => requirement.split('=') as [string, string]));

const matches = ({ pod }: Stored, selector: Labels): boolean =>
  Object.entries(selector).every(([name, value]) => pod.labels[name] === value);

function objectOf({ uid, version, pod }: Stored) {
  return {
    metadata: {
      name: pod.name,
      namespace: NAMESPACE,
      uid,
      resourceVersion: `${version}`,
      labels: pod.labels,
      annotations: { 'example.org/cut-here': '🦀 é 中'.repeat(20) },
      ...(pod.terminating ? { deletionTimestamp: '2026-11-25T08:00:00Z', deletionGracePeriodSeconds: 30 } : {}),
    },
    spec: { containers: [{ name: 'engine' }] },
    status: {
      phase: pod.phase,
      conditions: [
        { type: 'PodScheduled', status: 'True' },
        { type: 'Ready', status: pod.ready ? 'True' : 'False' },
      ],
      ...(pod.ip === null ? {} : { podIP: pod.ip, podIPs: [{ ip: pod.ip }] }),
    },
  };
}

const statusOf = (code: number, message: string) => ({
  kind: 'Status',
  apiVersion: 'v1',
  status: 'Failure',
  reason: code === 410 ? 'Expired' : 'Forbidden',
  message,
  code,
});

const status = (response: ServerResponse, code: number, message: string): void =>
  json(response, statusOf(code, message), code);
