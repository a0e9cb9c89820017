import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createWriteStream, readFileSync } from 'node:fs';
import { chown, mkdir, readdir, rename, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { Transform } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { fileURLToPath } from 'node:url';
import { raceAbort } from '../../../core/race-abort.ts';
import type { Sandbox } from '../empty-sandbox.ts';
import { hostWork, SandboxError } from '../errors.ts';
import type { Isolation } from '../isolation.ts';
import { launch } from '../launcher.ts';
import type { Limits } from '../limits.ts';
import { removeTree } from '../remove-tree.ts';
import { sandboxUser } from '../sandbox-user.ts';
import { openChannel, type Channel } from './channel.ts';
import type { Cluster } from './cluster.ts';
import { HELPER, VOLUMES, type PodFolder } from './manifests.ts';

let program: string | null = null;

/** Returns the command of the helper. Its program travels as an argument, so that images need nothing of Trialgate. */
export function helperCommand(folders: Copied[], storageMb: number, ports: number[]): string[] {
  program ??= readFileSync(fileURLToPath(new URL('./helper.py', import.meta.url)), 'utf8');
  const paths = folders.map(({ name }) => `${VOLUMES}/${name}`);
  return ['python3', '-I', '-S', '-c', program, `${Math.ceil(storageMb)}`, ...paths, '--', ...ports.map(String)];
}

/** A folder of the pod and the folder of this host that it is a copy of. */
export type Copied = PodFolder & { host: string };

/** The folder itself is not packed: in the pod it is a mount, whose mode only the node may set. */
const PACK_HERE = 'cd "$1" && find . -mindepth 1 -maxdepth 1 -print0 | tar -c -S --format=posix --null -T - -f -';

/** Sends the files of folders to the helper, which unpacks them. */
export async function copyIntoPod(helper: Channel, folders: Copied[], signal: AbortSignal): Promise<void> {
  for (const { host } of folders) {
    const tar = spawn('sh', ['-c', PACK_HERE, 'sh', host], { stdio: ['ignore', 'pipe', 'ignore'], signal });
    const exited = once(tar, 'exit');
    exited.catch(() => {});
    const write = (data: Buffer) => raceAbort(helper.write(framed(data)), signal);
    try {
      for await (const chunk of tar.stdout) await write(chunk);
      const [code] = await exited;
      if (code !== 0) throw new SandboxError(`the files in ${host} could not be read: tar ended with ${code}`);
      await write(Buffer.alloc(0));
    } finally {
      tar.kill('SIGKILL');
    }
  }
}

function framed(data: Buffer): Buffer {
  const length = Buffer.alloc(4);
  length.writeUInt32BE(data.length);
  return Buffer.concat([length, data]);
}

type Place = { cluster: Cluster; host: Isolation };

/**
 * Replaces folders of this host by what the pod has in them. Returns false when they are larger than the sandbox's disk, or have paths that are longer than
 * Linux opens, and stay as they were.
 * @throws SandboxError when the host, the API server or the pod fails; the signal's reason on abort
 */
export async function copyFromPod(
  { cluster, host }: Place,
  sandbox: Sandbox,
  { pod, folders, limits, signal }: { pod: string; folders: Copied[]; limits: Limits; signal: AbortSignal },
): Promise<boolean> {
  const archive = join(sandbox.root, `${pod}.tar`);
  const incoming = join(sandbox.root, pod);
  try {
    await hostWork('a folder for the files of a pod', () => mkdir(incoming, { mode: 0o755 }));
    if (!(await fetchArchive(cluster, { pod, folders, archive, most: mostBytes(limits), signal }))) return false;
    if (!(await unpackOnHost(host, sandbox, { archive, incoming, limits, signal }))) return false;
    const present = new Set(await readdir(incoming));
    const missing = folders.find(({ name }) => !present.has(name));
    if (missing) throw new SandboxError(`the files of ${missing.inside} did not come back from the pod ${pod}`);
    for (const { name, host: folder } of folders) {
      const before = join(sandbox.root, `${pod}.${name}`);
      await hostWork('replacing the files of a sandbox', async () => {
        await rename(folder, before);
        await rename(join(incoming, name), folder);
      });
      await removeTree(before);
    }
    return true;
  } finally {
    await rm(archive, { force: true });
    await removeTree(incoming);
  }
}

const mostBytes = ({ storageMb }: Limits): number => (storageMb * 2 + 64) * 2 ** 20;

/** A program may have closed its folders to itself, and so to the helper. What cannot be read is left out. */
const PACK = `cd ${VOLUMES}; find "$@" -type d ! -perm -700 -exec chmod u+rwx {} + 2>/dev/null
exec tar -c -S --format=posix --ignore-failed-read -f - "$@" 2>/dev/null`;

async function fetchArchive(
  cluster: Cluster,
  {
    pod,
    folders,
    archive,
    most,
    signal,
  }: { pod: string; folders: Copied[]; archive: string; most: number; signal: AbortSignal },
): Promise<boolean> {
  const command = ['/bin/sh', '-c', PACK, 'sh', ...folders.map(({ name }) => name)];
  const channel = await openChannel(cluster, { pod, container: HELPER, command });
  channel.stderr.resume();
  let bytes = 0;
  const bounded = new Transform({
    transform(chunk: Buffer, _, done) {
      bytes += chunk.length;
      done(bytes > most ? new RangeError('too large') : null, chunk);
    },
  });
  try {
    await pipeline(channel.stdout, bounded, createWriteStream(archive, { mode: 0o600 }), { signal });
    const exitCode = await raceAbort(channel.ended, signal);
    if (exitCode === null)
      throw new SandboxError(`the connection to the pod ${pod} ended while its files were fetched`);
    // tar leaves out files that it cannot read, and reports no error for them.
    if (exitCode !== 0)
      throw new SandboxError(`the files of the pod ${pod} could not be packed: tar ended with ${exitCode}`);
    return true;
  } catch (error) {
    if (error instanceof RangeError) return false;
    signal.throwIfAborted();
    return hostWork('fetching the files of a pod', () => Promise.reject(error));
  } finally {
    channel.close();
  }
}

/**
 * Unpacks an archive. Its content is a program's, so a process does it that sees nothing but its folder. Returns false when the files are too
 * large or their paths too long.
 */
async function unpackOnHost(
  host: Isolation,
  sandbox: Sandbox,
  { archive, incoming, limits, signal }: { archive: string; incoming: string; limits: Limits; signal: AbortSignal },
): Promise<boolean> {
  const uid = sandboxUser(host, sandbox);
  const inside = host.kind === 'bubblewrap' ? '/in' : incoming;
  if (uid !== null) await hostWork('a folder for the files of a pod', () => chown(incoming, uid, uid));
  const { reason, exitCode, stderr } = await launch({
    argv: ['tar', '-x', '-p', '-C', inside, '-f', '-'],
    cwd: inside,
    env: { PATH: '/usr/bin:/bin', LC_ALL: 'C' },
    limits: {
      ...{ seconds: 600, memoryMb: 512, outputBytes: 2 ** 20, processes: 16, cpus: 1 },
      storageMb: limits.storageMb * 2 + 1024,
    },
    isolation: host,
    uid,
    mounts: [{ host: incoming, inside, writable: true }],
    network: { kind: 'none' },
    marker: sandbox.marker,
    root: incoming,
    stdin: archive,
    signal,
  });
  signal.throwIfAborted();
  if (reason === 'storage_limit') return false;
  if (reason === 'exited' && exitCode === 0) return true;
  // A program can make such paths by going down step by step.
  if (reason === 'exited' && /File name too long/.test(stderr)) return false;
  const how = reason === 'exited' ? `tar ended with ${exitCode}` : `tar was ended: ${reason}`;
  throw new SandboxError(`the files of a pod could not be unpacked: ${how}: ${stderr.trim().slice(-300)}`);
}
