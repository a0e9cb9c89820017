import { createHash } from 'node:crypto';
import { readFile, readlink, stat } from 'node:fs/promises';
import { join, posix } from 'node:path';
import { Readable } from 'node:stream';
import { pack } from 'tar-fs';
import { TrialgateError } from '../../../core/errors.ts';
import type { ImageSource } from '../../../core/task.ts';
import type { Image, PrepareOptions } from '../backend.ts';
import { SandboxError } from '../errors.ts';
import { walkFiles } from '../walk-files.ts';
import { answered, messageOf, statusOf, type Engine } from './engine.ts';
import { filesOf } from './image-files.ts';
import { shareWork } from './shared-work.ts';

/** The work folder of a sandbox whose image names none. */
const WORKDIR = '/app';
const BUILT = 'localhost/trialgate-task';
/** The engine's own `image prune` can select images that were built for tasks by this label. */
const IMAGE_LABEL = 'trialgate.image';

/** The time limit of a build whose task sets none. Harbor has the same default. */
const BUILD_SECONDS = 600;
const BUILD_MEMORY = 8 * 2 ** 30;

/**
 * Returns an image of the engine. One with a name is fetched unless the engine has it; a folder's is built once for its content.
 * @throws TrialgateError `bad_input` when it cannot be built or fetched, or no sandbox can have it; SandboxError when the engine, the network or a registry fails
 */
export async function prepareImage(engine: Engine, source: ImageSource, options: PrepareOptions): Promise<Image> {
  const { signal } = options;
  signal.throwIfAborted();
  const shown = 'name' in source ? source.name : `of ${join(source.folder, 'Dockerfile')}`;
  const name = 'name' in source ? source.name : `${BUILT}:${await digestOf(source.folder)}`;
  if (!(await inspect(engine, name)))
    await shareWork(name, signal, (until) =>
      'name' in source
        ? pull(engine, name, { ...options, signal: until })
        : build(engine, source, name, { ...options, signal: until }),
    );
  const found = await inspect(engine, name);
  if (!found) throw new SandboxError(`the container engine lost the image ${name} at once: is its disk full?`);
  const { WorkingDir: given, Env: env, Volumes: volumes } = found.Config;
  const workdir = workdirOf(given);
  requireUsable(shown, workdir, Object.keys(volumes ?? {}));
  const image = {
    id: found.Id,
    workdir,
    env: Object.fromEntries((env ?? []).map((line) => splitOnce(line))),
  };
  return { ...image, files: await filesOf(engine, { ...image, name: shown }, options) };
}

/** Returns the work folder of a sandbox whose image has this WORKDIR. */
export const workdirOf = (given: string | undefined): string =>
  posix.resolve('/', given ?? '').replace(/^\/$/, WORKDIR);

/** Folders that a sandbox has of its own: a work folder in, at or around one would hide the other. */
const OWN = [
  ...['/tests', '/logs', '/tmp', '/home/agent', '/dev', '/proc', '/sys', '/run', '/var/run'],
  ...['/agents', '/mounts', '/repository'],
];
/** Folders without which no program of the image runs. */
const SYSTEM = ['/etc', '/usr', '/usr/bin', '/usr/lib', '/bin', '/sbin', '/lib', '/lib32', '/lib64', '/libx32', '/var'];

/** @throws TrialgateError `bad_input` when the image's work folder would hide others, or has files that no limit counts */
export function requireUsable(shown: string, workdir: string, volumes: string[]): void {
  const isBelow = (path: string, folder: string): boolean => path === folder || path.startsWith(`${folder}/`);
  const hidden =
    OWN.find((own) => isBelow(workdir, own) || isBelow(own, workdir)) ?? SYSTEM.find((one) => one === workdir);
  if (hidden !== undefined)
    throw new TrialgateError(
      'bad_input',
      `the image ${shown}: its WORKDIR is ${workdir}, and a sandbox's work folder there would hide ${hidden}: choose another WORKDIR, such as ${WORKDIR}`,
    );
  if (volumes.length > 0)
    throw new TrialgateError(
      'bad_input',
      `the image ${shown}: it has volumes (${volumes.join(', ')}), whose files no limit of a sandbox counts: build an image without VOLUME`,
    );
}

async function inspect({ docker }: Engine, name: string) {
  try {
    return await answered(docker.getImage(name).inspect(), `looking for the image ${name}`);
  } catch (error) {
    if (statusOf(error) === 404) return null;
    throw error;
  }
}

/** An error that the engine itself reports in its answer to a pull or a build. */
class ReportedError extends Error {}

const IS_WRONG_NAME =
  /manifest unknown|not found: manifest|manifest .*not found|name unknown|repository .*not found|does not exist|denied|unauthorized|authentication required|no basic auth|invalid reference|no such image/i;
const IS_HOST_FAULT =
  /no space left on device|quota exceeded|connection refused|no such host|i\/o timeout|timeout exceeded|network is unreachable|connection reset|TLS handshake|too ?many ?requests|\b(429|5\d\d) /i;

async function pull({ docker }: Engine, name: string, { signal, report }: PrepareOptions): Promise<void> {
  report?.(`fetching the image ${name}`);
  try {
    const stream: NodeJS.ReadableStream = await docker.pull(name, { abortSignal: signal });
    await followed(docker, stream, signal);
  } catch (error) {
    signal.throwIfAborted();
    const status = statusOf(error) ?? 0;
    const message = messageOf(error);
    const isWrong =
      !IS_HOST_FAULT.test(message) && ([400, 401, 403, 404].includes(status) || IS_WRONG_NAME.test(message));
    const what = `the image ${name} cannot be fetched (${message})`;
    if (!isWrong)
      throw new SandboxError(`${what}: check the network and the engine, or fetch it yourself with its \`pull\``, {
        cause: error,
      });
    throw new TrialgateError(
      'bad_input',
      `${what}: correct its name, or fetch it yourself with the engine's \`pull\``,
      { cause: error },
    );
  }
}

async function build(
  { docker }: Engine,
  { folder, buildSeconds = BUILD_SECONDS }: Extract<ImageSource, { folder: string }>,
  name: string,
  { signal, report }: PrepareOptions,
): Promise<void> {
  report?.(`building the image of ${folder}`);
  const output: string[] = [];
  const late = AbortSignal.timeout(Math.ceil(buildSeconds * 1000));
  const until = AbortSignal.any([signal, late]);
  const file = join(folder, 'Dockerfile');
  try {
    const context = Readable.from(pack(folder));
    const limits = { memory: BUILD_MEMORY, memswap: BUILD_MEMORY };
    const labels = { [IMAGE_LABEL]: 'task' };
    const stream = await docker.buildImage(context, { t: name, labels, forcerm: true, abortSignal: until, ...limits });
    await followed(docker, stream, until, (line) => {
      output.push(line);
      report?.(line);
    });
  } catch (error) {
    signal.throwIfAborted();
    const last = output.slice(-5).join('\n');
    const why = late.aborted ? `it takes longer than ${buildSeconds} s, its \`build_timeout_sec\`` : messageOf(error);
    const message = `${file}: the image cannot be built: ${why}${last ? `\n${last}` : ''}`;
    const isReported = error instanceof ReportedError || statusOf(error) === 400 || /dockerfile/i.test(why);
    if (!late.aborted && (!isReported || IS_HOST_FAULT.test(why))) throw new SandboxError(message, { cause: error });
    throw new TrialgateError('bad_input', message, { cause: error });
  }
}

/** Reads the engine's progress to its end. An error in it is an error of the whole. */
function followed(
  docker: Engine['docker'],
  stream: NodeJS.ReadableStream,
  signal: AbortSignal,
  onLine: (line: string) => void = () => {},
): Promise<void> {
  const stop = (): void => void ('destroy' in stream && typeof stream.destroy === 'function' && stream.destroy());
  signal.addEventListener('abort', stop, { once: true });
  return new Promise<void>((resolve, reject) => {
    docker.modem.followProgress(
      stream,
      (error) => (error ? reject(error) : resolve()),
      ({ stream: text, status, error }: { stream?: string; status?: string; error?: string }) => {
        const line = (text ?? status ?? '').trim();
        if (line) onLine(line);
        if (error) reject(new ReportedError(error));
      },
    );
    stream.once('close', () => reject(new Error('the engine ended the connection')));
  }).finally(() => signal.removeEventListener('abort', stop));
}

/** Names the content of a folder: paths, whether each file can be run, bytes, and what links name. */
async function digestOf(folder: string): Promise<string> {
  const entries: string[] = [];
  for await (const { entry, path } of walkFiles(folder)) {
    const relative = path.subarray(Buffer.byteLength(folder) + 1).toString('latin1');
    if (entry.isSymbolicLink()) {
      entries.push(`${relative}\0link\0${await readlink(path, { encoding: 'latin1' })}`);
      continue;
    }
    if (!entry.isFile()) {
      entries.push(`${relative}\0${entry.isDirectory() ? 'folder' : 'other'}`);
      continue;
    }
    const { mode } = await stat(path);
    const bytes = createHash('sha256').update(await readFile(path));
    entries.push(`${relative}\0${mode & 0o111 ? 'x' : '-'}\0${bytes.digest('hex')}`);
  }
  return createHash('sha256').update(entries.toSorted().join('\n')).digest('hex').slice(0, 32);
}

function splitOnce(line: string): [string, string] {
  const at = line.indexOf('=');
  return at === -1 ? [line, ''] : [line.slice(0, at), line.slice(at + 1)];
}
