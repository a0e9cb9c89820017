import type { Log } from '../../core/log.ts';
import { raceAbort } from '../../core/race-abort.ts';
import { weightsFolderIn } from './relayed-routes.ts';
import { isObject, parseObject, type JsonObject } from '../json.ts';
import {
  jsonReply,
  readText,
  type EngineConnection,
  type EngineReply,
  type EngineRequest,
} from '../engines/connection.ts';
import { FETCH_CHECKPOINT } from './checkpoints.ts';

export type Fetching = { done: Promise<void>; progress: { fetched: number; bytes: number } };

/** The worker's own copies of checkpoints. A path is that of a checkpoint on the deployment's machine. */
export interface Copies {
  fetch: (path: string) => Fetching;
  /** Fetches the checkpoint, and calls `load` with the path of its copy, which stays at least until that has ended. */
  load: <T>(path: string, load: (copy: string) => Promise<T>, signal: AbortSignal) => Promise<T>;
  /** Returns an engine's reply with the deployment's paths in place of those of copies. */
  asDeployed: (json: string) => string;
}

/** Who asks for a checkpoint beforehand gets an answer after this time, so that no proxy on its way takes the request for dead. */
const ANSWER_MS = 20_000;

/**
 * The worker's connection to its engine. Where the worker has copies, it lets the engine load these in place of the deployment's checkpoints,
 * and shows the deployment's paths where the engine names the copies.
 */
export class CheckpointConnection implements EngineConnection {
  readonly #engine: EngineConnection;
  readonly #copies: Copies | null;
  readonly #log: Log;
  readonly #answerMs: number;

  constructor(engine: EngineConnection, copies: Copies | null, log: Log, answerMs = ANSWER_MS) {
    this.#engine = engine;
    this.#copies = copies;
    this.#log = log;
    this.#answerMs = answerMs;
  }

  get url(): string {
    return this.#engine.url;
  }

  get epoch(): number {
    return this.#engine.epoch;
  }

  get onChange(): (() => void) | null {
    return this.#engine.onChange;
  }

  set onChange(listener: (() => void) | null) {
    this.#engine.onChange = listener;
  }

  async send(request: EngineRequest): Promise<EngineReply> {
    if (request.path === FETCH_CHECKPOINT) return this.#fetch(request);
    const load = loadIn(this.url, request);
    if (load === 'unknown' && this.#copies)
      return refusal(400, 'invalid_request', `${request.path} must name the checkpoint to load`);
    if (load && load !== 'unknown') return this.#load(load, request);
    return this.#shown(request, await this.#engine.send(request));
  }

  async ask(request: EngineRequest): Promise<EngineReply> {
    if (loadIn(this.url, request)) return this.send(request);
    return this.#shown(request, await this.#engine.ask(request));
  }

  close(): Promise<void> {
    return this.#engine.close();
  }

  async #fetch({ body = '', signal }: EngineRequest): Promise<EngineReply> {
    const path = parseObject(body)?.path;
    if (typeof path !== 'string') return refusal(400, 'invalid_request', 'the body must name a path');
    if (!this.#copies) return jsonReply(200, { ready: true });
    const { done, progress } = this.#copies.fetch(path);
    const limit = AbortSignal.timeout(this.#answerMs);
    try {
      await raceAbort(done, AbortSignal.any([signal, limit]));
      return jsonReply(200, { ready: true });
    } catch (error) {
      signal.throwIfAborted();
      return error === limit.reason ? jsonReply(200, { ready: false, ...progress }) : notFetched(path, error);
    }
  }

  async #load({ path, withPath }: Load, request: EngineRequest): Promise<EngineReply> {
    if (!this.#copies) return this.#loadInPlace(path, request);
    let isFetched = false;
    const load = (copy: string) => {
      isFetched = true;
      return this.#engine.send({ ...request, body: withPath(copy) });
    };
    try {
      return await this.#copies.load(path, load, request.signal);
    } catch (error) {
      if (isFetched || request.signal.aborted) throw error;
      return notFetched(path, error);
    }
  }

  async #loadInPlace(path: string, request: EngineRequest): Promise<EngineReply> {
    const hint = `the engine did not load ${path}: if its machine does not see the deployment's folder, start this worker with --checkpoints DIR`;
    const reply = await this.#engine.send(request).catch((error: unknown) => {
      if (!request.signal.aborted) this.#log(hint, { level: 'warning' });
      throw error;
    });
    if (reply.status >= 400) this.#log(hint, { level: 'warning' });
    return reply;
  }

  async #shown({ method }: EngineRequest, reply: EngineReply): Promise<EngineReply> {
    if (!this.#copies || method !== 'GET' || reply.contentType.startsWith('text/')) return reply;
    const text = this.#copies.asDeployed(await readText(reply.body));
    return { ...reply, body: new Blob([text]).stream() };
  }
}

type Load = { path: string; withPath: (path: string) => string };

/**
 * Returns the path that a request lets the engine load, and how to write another one in its place; null when it loads nothing, and `unknown`
 * when it names no path and may load what is not seen here.
 */
function loadIn(engine: string, { method, path: route, body }: EngineRequest): Load | 'unknown' | null {
  const keys = method === 'POST' ? weightsFolderIn(engine, route) : null;
  if (!keys) return null;
  const request = parseObject(body ?? '');
  if (!request) return 'unknown';
  const path = keys.reduce<unknown>((value, key) => (isObject(value) ? value[key] : undefined), request);
  if (typeof path !== 'string') return 'unknown';
  // A load of an empty path is a question, which the engine refuses.
  if (path === '') return null;
  return { path, withPath: (other) => JSON.stringify(replaced(request, keys, other)) };
}

function replaced(value: JsonObject, [key = '', ...below]: readonly string[], leaf: string): JsonObject {
  const inner = value[key];
  return { ...value, [key]: isObject(inner) ? replaced(inner, below, leaf) : leaf };
}

function notFetched(path: string, error: unknown): EngineReply {
  const why = error instanceof Error ? error.message : String(error);
  return refusal(503, 'checkpoint_not_fetched', `the relay worker cannot fetch ${path}: ${why}`);
}

const refusal = (status: number, code: string, message: string): EngineReply =>
  jsonReply(status, { error: { message, type: 'relay_error', code } });
