import { link, mkdir, readdir, realpath, rename, rm, rmdir, stat, statfs, utimes, writeFile } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { Agent, request, type Dispatcher } from 'undici';
import type { Log } from '../../../core/log.ts';
import { TrialgateError } from '../../../core/errors.ts';
import { parseJson, isObject } from '../../../core/json.ts';
import { takeLock, type Lock } from '../../../core/lock.ts';
import { raceAbort } from '../../../core/race-abort.ts';
import { sleep } from '../../../core/sleep.ts';
import type { Copies, Fetching } from '../../relay/checkpoint-connection.ts';
import {
  checkpointAt,
  checkpointList,
  CHECKPOINTS,
  filesOf,
  NO_CHECKPOINT,
  type CheckpointFile,
} from '../../relay/checkpoints.ts';
import { fetchFile, PART } from './fetch-file.ts';

type Options = {
  /** The folder in which it makes its own folder, `trialgate-checkpoints`. No other worker may have it. */
  folder: string;
  gateway: string;
  adminKey: string | null;
  /** Returns what the engine says of its models, with the paths of their folders. */
  modelsOfEngine: () => Promise<string>;
  /** The shortest and the longest pause before it asks the gateway again. */
  backOffMs: { least: number; most: number };
  log: Log;
  /** Returns the room on the disk of a folder. */
  freeBytes?: (folder: string) => Promise<number>;
};

/** Refusals that may be over at the next try. A 404 that is not the gateway's own comes from a proxy while the gateway restarts. */
const PASSING = new Set([404, 408, 425, 429]);
/** The newest copies that stay beside the one that is fetched. An engine may read an adapter again that others have displaced. */
const KEPT = { models: 2, adapters: 15 };
/** Tries in a row that bring nothing. */
const TRIES = 6;
const SILENCE_MS = 60_000;
/** A load soon after its fetch asks the gateway for nothing, because the engine is paused by then. */
const SOON_MS = 60_000;
const SPARE_BYTES = 64 * 2 ** 20;
/** Whatever else the user's folder has is left alone. */
const OWN_FOLDER = 'trialgate-checkpoints';
const OWN_FILE = /^[0-9a-f]{64}(?:\.part)?$/;
/** The folder of a copy. Copies of deeper paths are beside it, so no folder of a deployment may have its name. */
const COPY = 'trialgate-copy';
const ADAPTER_CONFIG = 'adapter_config.json';

/**
 * The worker's copies of the deployment's checkpoints. Each file is kept once, under its digest, in `files/`. The copy of the checkpoint at
 * `/path` is the folder `copies/path/trialgate-copy`, whose files are hard links to these, so an engine's reply shows which checkpoint it has.
 */
export class CheckpointCopies implements Copies {
  readonly #options: Options;
  readonly #folder: string;
  readonly #signal: AbortSignal;
  readonly #closing = new AbortController();
  #lock: Lock | null = null;
  /** Settles when the last fetch that has begun or waits has ended. */
  #lastFetch: Promise<unknown> = Promise.resolve();
  readonly #agent = new Agent({ headersTimeout: SILENCE_MS, bodyTimeout: SILENCE_MS });
  readonly #fetching = new Map<string, Fetching>();
  /** The times at which fetches of paths ended well. */
  readonly #fetchedAt = new Map<string, number>();
  /** The paths that are fetched or loaded now, some more than once. */
  readonly #inUse: string[] = [];
  readonly #ownPaths: RegExp;

  private constructor(options: Options, signal: AbortSignal) {
    this.#options = options;
    this.#folder = join(options.folder, OWN_FOLDER);
    this.#signal = AbortSignal.any([signal, this.#closing.signal]);
    const prefix = JSON.stringify(`${this.#copies}/`).slice(0, -2);
    this.#ownPaths = new RegExp(`${prefix.replace(/[$()*+.?[\\\]^{|}]/g, '\\$&')}((?:/[^"/]+)+)/${COPY}(?=")`, 'g');
  }

  static async open(options: Options, signal: AbortSignal): Promise<CheckpointCopies> {
    const copies = new CheckpointCopies(options, signal);
    try {
      await mkdir(copies.#files, { recursive: true });
      await mkdir(copies.#copies, { recursive: true });
      copies.#lock = await takeLock(await realpath(copies.#folder), 'checkpoints');
      if (copies.#lock) await copies.#requireLinks();
    } catch (cause) {
      await copies.close();
      const what = `checkpoints cannot be kept in ${options.folder} (${messageOf(cause)}): correct --checkpoints`;
      throw new TrialgateError('bad_input', what, { cause });
    }
    if (copies.#lock) return copies;
    await copies.close();
    throw new TrialgateError(
      'bad_input',
      `another relay worker keeps its checkpoints in ${options.folder}: give each worker a folder of its own with --checkpoints`,
    );
  }

  fetch(path: string): Fetching {
    const known = this.#fetching.get(path);
    if (known) return known;
    const progress = { fetched: 0, bytes: 0 };
    const done = this.#using(path, () => this.#inTurn(() => this.#fetch(path, progress))).finally(() =>
      this.#fetching.delete(path),
    );
    this.#fetchedAt.delete(path);
    // Whoever asked may have gone.
    done.then(
      () => this.#fetchedAt.set(path, performance.now()),
      () => {},
    );
    const fetching = { done, progress };
    this.#fetching.set(path, fetching);
    return fetching;
  }

  load<T>(path: string, load: (copy: string) => Promise<T>, signal: AbortSignal): Promise<T> {
    return this.#using(path, async () => {
      if (!this.#isJustFetched(path)) await raceAbort(this.fetch(path).done, signal);
      return load(this.#copyOf(path));
    });
  }

  asDeployed(json: string): string {
    return json.replace(this.#ownPaths, '"$1');
  }

  /** Ends what is fetched now. Afterwards another worker may have the folder. */
  async close(): Promise<void> {
    this.#closing.abort();
    await this.#agent.destroy();
    await this.#lastFetch;
    await this.#lock?.release();
  }

  get #files(): string {
    return join(this.#folder, 'files');
  }

  get #copies(): string {
    return join(this.#folder, 'copies');
  }

  /** Throws where a copy cannot have hard links to files. */
  async #requireLinks(): Promise<void> {
    const [file, copy] = [join(this.#files, 'linked'), join(this.#copies, 'linked')];
    await writeFile(file, '');
    await rm(copy, { force: true });
    await link(file, copy);
    await Promise.all([rm(file), rm(copy)]);
  }

  /** One fetch at a time: each removes what it finds in no copy. */
  #inTurn<T>(work: () => Promise<T>): Promise<T> {
    const turn = this.#lastFetch.then(() => {
      this.#signal.throwIfAborted();
      return work();
    });
    this.#lastFetch = turn.catch(() => {});
    return turn;
  }

  #fileOf(sha256: string): string {
    return join(this.#files, sha256);
  }

  #copyOf(path: string): string {
    return join(this.#copies, path, COPY);
  }

  #isJustFetched(path: string): boolean {
    const at = this.#fetchedAt.get(path);
    return at !== undefined && performance.now() - at < SOON_MS;
  }

  async #using<T>(path: string, work: () => Promise<T>): Promise<T> {
    this.#inUse.push(path);
    try {
      return await work();
    } finally {
      this.#inUse.splice(this.#inUse.indexOf(path), 1);
    }
  }

  async #fetch(path: string, progress: Fetching['progress']): Promise<void> {
    const checkpoint = checkpointAt(path);
    if (!checkpoint)
      throw new TrialgateError(
        'bad_input',
        'it is no checkpoint of a deployment (…/checkpoints/NAME), and with --checkpoints the engine loads nothing else',
      );
    const copy = this.#copyOf(path);
    const listed = await this.#list(checkpoint.name);
    // The engine may go back to a version that the deployment does not keep.
    if (!listed && (await isThere(copy))) return touch(copy);
    if (!listed)
      throw new TrialgateError(
        'not_found',
        `the gateway at ${this.#options.gateway} does not see it: it was removed, or that gateway was started with another --home than the deployment's`,
      );
    const files = filesOf(listed, checkpoint);
    if (await this.#isWhole(copy, files)) return touch(copy);
    try {
      await this.#makeRoom(path, KEPT.models);
      if (await this.#lacks(files)) await this.#makeRoom(path, 1);
      await this.#requireRoom(files);
      progress.bytes = files.reduce((sum, { bytes }) => sum + bytes, 0);
      for (const file of files) await this.#fetchFile(checkpoint.name, file, progress);
      await this.#link(copy, files);
      this.#options.log(`has fetched ${path}, ${toMib(progress.bytes)} MiB with what was here already`);
    } catch (error) {
      throw isDiskFull(error) ? await this.#diskFull(null, error) : error;
    }
  }

  /** Returns null when the gateway has no such checkpoint. */
  async #list(name: string): Promise<CheckpointFile[] | null> {
    return this.#again(async () => {
      const reply = await this.#ask(`${CHECKPOINTS}/${name}`);
      if (!reply) return null;
      const { data, error } = checkpointList.safeParse(await reply.body.json());
      if (data) return data.files;
      throw new TrialgateError(
        'bad_input',
        `the gateway at ${this.#options.gateway} lists what is no checkpoint: give it and the worker the same version`,
        { cause: error },
      );
    });
  }

  async #fetchFile(
    name: string,
    { path, bytes, sha256 }: CheckpointFile,
    progress: Fetching['progress'],
  ): Promise<void> {
    const target = this.#fileOf(sha256);
    const before = progress.fetched;
    try {
      if (!(await isThere(target)))
        await fetchFile({
          ...{ target, bytes, sha256, signal: this.#signal },
          read: async (from) => {
            const reply = await this.#ask(`${CHECKPOINTS}/${name}/${sha256}`, { range: `bytes=${from}-` });
            if (!reply) throw new TrialgateError('not_found', 'the gateway does not have it any more');
            return { from: reply.statusCode === 206 ? from : 0, body: reply.body };
          },
          again: (work, size) => this.#again(work, size),
          onSize: (size) => (progress.fetched = before + size),
        });
    } catch (error) {
      if (!(error instanceof TrialgateError)) throw error;
      throw new TrialgateError(error.code, `its file ${path}: ${error.message}`, { cause: error });
    }
    progress.fetched = before + bytes;
  }

  /** Returns null for a checkpoint or file that the gateway does not have. */
  async #ask(route: string, headers: Record<string, string> = {}): Promise<Dispatcher.ResponseData | null> {
    const { gateway, adminKey } = this.#options;
    const reply = await request(`${gateway.replace(/\/+$/, '')}${route}`, {
      dispatcher: this.#agent,
      headers: { ...headers, ...(adminKey === null ? {} : { authorization: `Bearer ${adminKey}` }) },
      signal: this.#signal,
    });
    const { statusCode: status } = reply;
    if (status === 200 || status === 206) return reply;
    const said = parseJson(await reply.body.text());
    const error = isObject(said) && isObject(said.error) ? said.error : {};
    if (error.code === NO_CHECKPOINT) return null;
    if (status === 404 && typeof error.code === 'string') throw noCheckpointsAt(gateway);
    const why = `the gateway at ${gateway} answered ${status}: ${String(error.message ?? 'without a reason')}`;
    throw status < 500 && !PASSING.has(status) ? new TrialgateError('bad_input', why) : new Error(why);
  }

  /** Asks the gateway again while it cannot be reached, until several tries in a row have brought nothing. */
  async #again<T>(work: () => Promise<T>, size = () => 0): Promise<T> {
    const { gateway, backOffMs, log } = this.#options;
    let [failed, before] = [0, size()];
    for (;;) {
      try {
        return await work();
      } catch (error) {
        if (error instanceof TrialgateError || this.#signal.aborted || isDiskFull(error)) throw error;
        failed = size() > before ? 1 : failed + 1;
        before = size();
        const why = `the gateway at ${gateway} does not give it (${messageOf(error)})`;
        if (failed === TRIES) throw new TrialgateError('engine_unavailable', why, { cause: error });
        log(`${why}: asks again`, { level: 'warning' });
        await sleep(Math.min(backOffMs.least * 2 ** failed, backOffMs.most), this.#signal);
      }
    }
  }

  /** True when the copy has exactly these files, with these digests. */
  async #isWhole(copy: string, files: readonly CheckpointFile[]): Promise<boolean> {
    const names = await readdir(copy).catch(() => []);
    if (names.length !== files.length) return false;
    const same = files.map(({ path, sha256 }) => isSameFile(join(copy, basename(path)), this.#fileOf(sha256)));
    return !(await Promise.all(same)).includes(false);
  }

  /** Makes the copy of files that are all there. */
  async #link(copy: string, files: readonly CheckpointFile[]): Promise<void> {
    const draft = join(this.#folder, 'draft');
    await rm(draft, { recursive: true, force: true });
    await mkdir(draft);
    for (const { path, sha256 } of files) await link(this.#fileOf(sha256), join(draft, basename(path)));
    await rm(copy, { recursive: true, force: true });
    await mkdir(dirname(copy), { recursive: true });
    await rename(draft, copy);
  }

  /** Removes copies that are neither among the newest nor in use, and then the files that no copy has. */
  async #makeRoom(path: string, keptModels: number): Promise<void> {
    const copies = (await this.#all()).filter((each) => each.path !== path && !this.#inUse.includes(each.path));
    const models = copies.filter(({ isAdapter }) => !isAdapter).slice(keptModels);
    const adapters = copies.filter(({ isAdapter }) => isAdapter).slice(KEPT.adapters);
    const older = [...models, ...adapters];
    // While the engine does not say what it has, it may need any of them.
    const has = older.length === 0 ? '' : await this.#options.modelsOfEngine().catch(() => null);
    if (has === null) return;
    for (const { path: old, copy } of older) {
      // A load of it may have begun meanwhile.
      if (this.#inUse.includes(old) || has.includes(JSON.stringify(copy))) continue;
      this.#fetchedAt.delete(old);
      await this.#remove(copy);
    }
  }

  /** Returns all copies, the one that was used last first. */
  async #all(): Promise<{ path: string; copy: string; usedAt: number; isAdapter: boolean }[]> {
    const entries = await readdir(this.#copies, { recursive: true, withFileTypes: true });
    const folders = entries.filter((entry) => entry.isDirectory() && entry.name === COPY);
    const found = await Promise.all(
      folders.map(async ({ parentPath }) => {
        const path = parentPath.slice(this.#copies.length);
        const copy = this.#copyOf(path);
        const isAdapter = await isThere(join(copy, ADAPTER_CONFIG));
        return { path, copy, isAdapter, usedAt: (await stat(copy)).mtimeMs };
      }),
    );
    return found.filter(({ path }) => checkpointAt(path)).toSorted((a, b) => b.usedAt - a.usedAt);
  }

  async #remove(copy: string): Promise<void> {
    await rm(copy, { recursive: true });
    // Removes the folders above, as far as nothing else is in them.
    for (let above = dirname(copy); above !== this.#copies; above = dirname(above))
      if (
        !(await rmdir(above).then(
          () => true,
          () => false,
        ))
      )
        return;
  }

  /** Throws when the disk has no room for the files that are missing. */
  async #requireRoom(files: readonly CheckpointFile[]): Promise<void> {
    const missing = await this.#lacks(files);
    if (missing) throw await this.#diskFull(missing);
  }

  /** Removes files of which no copy is left. Returns the bytes that are missing, 0 when the disk has room for them. */
  async #lacks(files: readonly CheckpointFile[]): Promise<number> {
    const needed = new Map(files.map(({ sha256, bytes }) => [sha256, bytes]));
    for (const name of (await readdir(this.#files)).filter((each) => OWN_FILE.test(each))) {
      const file = join(this.#files, name);
      const { nlink, size } = await stat(file);
      const sha256 = basename(name, PART);
      const bytes = needed.get(sha256);
      if (bytes !== undefined) needed.set(sha256, Math.max(0, bytes - size));
      else if (nlink === 1) await rm(file);
    }
    const missing = [...needed.values()].reduce((sum, bytes) => sum + bytes, 0);
    return missing > 0 && (await this.#freeBytes()) < missing + SPARE_BYTES ? missing : 0;
  }

  #freeBytes(): Promise<number> {
    return (this.#options.freeBytes ?? freeBytesOf)(this.#folder);
  }

  async #diskFull(missing: number | null, cause?: unknown): Promise<TrialgateError> {
    const needs = missing === null ? '' : ` and it needs ${toMib(missing)} MiB more`;
    const what = `the disk of the relay worker is full: ${this.#folder} has ${toMib(await this.#freeBytes())} MiB free${needs}`;
    return new TrialgateError(
      'missing_prerequisite',
      `${what}: make room there, or give the worker another --checkpoints`,
      { cause },
    );
  }
}

const noCheckpointsAt = (gateway: string) =>
  new TrialgateError(
    'missing_prerequisite',
    `the gateway at ${gateway} gives no checkpoints (it is a Cloudflare Worker, not in relay mode, or of an older release): let the engine's machine see the deployment's folder, and start the worker without --checkpoints`,
  );

const messageOf = (error: unknown): string => (error instanceof Error ? error.message : String(error));

const isDiskFull = (error: unknown): boolean =>
  error instanceof Error && 'code' in error && (error.code === 'ENOSPC' || error.code === 'EDQUOT');

const isThere = (path: string): Promise<boolean> =>
  stat(path).then(
    () => true,
    () => false,
  );

async function isSameFile(one: string, other: string): Promise<boolean> {
  const [a, b] = await Promise.all([one, other].map((file) => stat(file, { bigint: true }).catch(() => null)));
  return a != null && b != null && a.ino === b.ino && a.dev === b.dev;
}

async function touch(path: string): Promise<void> {
  const now = new Date();
  await utimes(path, now, now);
}

async function freeBytesOf(folder: string): Promise<number> {
  const { bavail, bsize } = await statfs(folder);
  return bavail * bsize;
}

const toMib = (bytes: number): number => Math.floor(bytes / 2 ** 20);
