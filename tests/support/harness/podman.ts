import { spawn } from 'node:child_process';
import { once } from 'node:events';
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmdirSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { request } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import Docker from 'dockerode';
import { INSTALLS } from '../../../cli/folders.ts';
import { unpackDebianPackages } from '../../../cli/install/debian-package.ts';
import { until } from './until.ts';

const FOLDER = join(INSTALLS.root, 'podman');
const LOG = join(INSTALLS.root, 'logs/podman.log');
/** podman with all that it needs beside the system's own libraries, and a static shell for images. */
const PACKAGES = [
  ...['podman', 'conmon', 'crun', 'catatonit', 'golang-github-containers-common', 'containernetworking-plugins'],
  ...['libyajl2', 'libgpgme11', 'libsubid4', 'iptables', 'libnftnl11', 'libip6tc2', 'libnfnetlink0'],
  ...['libnetfilter-conntrack3', 'busybox-static'],
];

export type Podman = {
  /** For DOCKER_HOST. */
  host: string;
  /** A static busybox, from which a test can make an image. */
  busybox: string;
} & AsyncDisposable;

/** Returns why podman cannot be started here; null where it can. */
export function noPodman(): string | null {
  return process.getuid?.() === 0 ? null : 'podman of a folder needs root, for a mount namespace with its files';
}

/**
 * Starts a podman of its own, with its own images and containers. Its files are Debian's, in a folder of the installs, and only a mount
 * namespace of its own sees them in the system's places. Disposal ends it and removes what it made.
 */
export async function startPodman(signal: AbortSignal): Promise<Podman> {
  await fetchPodman(signal);
  const root = join(FOLDER, 'root');
  // podman's clean-up of a container that ended refuses a `runroot` of more than 50 characters, and its service then waits for 20 s.
  const folder = mkdtempSync(join(tmpdir(), 'podman-'));
  const settings = {
    'containers.conf': `[engine]\ncgroup_manager="cgroupfs"\nevents_logger="file"\nruntime="crun"\n[engine.runtimes]\ncrun=["/usr/bin/crun"]\n[containers]\nseccomp_profile="/usr/share/containers/seccomp.json"\ndefault_ulimits=["nofile=4096:4096","nproc=4096:4096"]\n`,
    'storage.conf': `[storage]\ndriver="overlay"\nrunroot="${folder}/run"\ngraphroot="${folder}/store"\n`,
    'home/.config/containers/policy.json': '{"default":[{"type":"insecureAcceptAnything"}]}',
    // crun refuses a machine with control groups of both versions, of which the second has controllers.
    'serve.sh': `umount /sys/fs/cgroup/unified 2>/dev/null\nmount -t overlay overlay -o lowerdir=${root}/usr:/usr /usr || exit 9\nexec podman system service --time 0 unix://${folder}/podman.sock\n`,
  };
  for (const [file, text] of Object.entries(settings)) {
    mkdirSync(join(folder, file, '..'), { recursive: true });
    writeFileSync(join(folder, file), text);
  }
  const service = spawn('setpriv', ['--pdeathsig', 'KILL', 'unshare', '--mount', 'sh', `${folder}/serve.sh`], {
    // conmon writes a file into its working folder when a container is out of memory.
    cwd: folder,
    env: {
      PATH: '/usr/sbin:/usr/bin:/sbin:/bin',
      HOME: join(folder, 'home'),
      TMPDIR: folder,
      CONTAINERS_CONF: join(folder, 'containers.conf'),
      CONTAINERS_STORAGE_CONF: join(folder, 'storage.conf'),
    },
    stdio: ['ignore', 'ignore', 'pipe'],
  });
  let said = '';
  service.stderr.on('data', (chunk: Buffer) => (said = `${said}${chunk.toString()}`.slice(-4000)));
  const ended = once(service, 'exit');
  const remove = async (): Promise<void> => {
    await removeContainers(join(folder, 'podman.sock'));
    service.kill('SIGTERM');
    await ended;
    endWatchers(folder);
    removeGroups();
    rmSync(folder, { recursive: true, force: true, maxRetries: 5 });
  };
  try {
    await until(() => {
      if (service.exitCode !== null) throw new Error(`podman ended: ${said}`);
      return answers(join(folder, 'podman.sock'));
    }, 60_000);
  } catch (error) {
    await remove();
    throw error;
  }
  return {
    host: `unix://${folder}/podman.sock`,
    busybox: join(root, 'bin/busybox'),
    [Symbol.asyncDispose]: remove,
  };
}

async function fetchPodman(signal: AbortSignal): Promise<void> {
  if (existsSync(join(FOLDER, 'root/usr/bin/podman'))) return;
  mkdirSync(INSTALLS.root, { recursive: true });
  const partial = mkdtempSync(join(INSTALLS.root, 'podman-'));
  try {
    if (!(await unpackDebianPackages(PACKAGES, partial, LOG, signal)))
      throw new Error(`podman cannot be fetched from Debian's packages: see ${LOG}`);
    if (!existsSync(FOLDER)) renameSync(partial, FOLDER);
  } finally {
    rmSync(partial, { recursive: true, force: true });
  }
}

/** Ends and removes what is left, so that no process of it outlives podman. */
async function removeContainers(socketPath: string): Promise<void> {
  const docker = new Docker({ socketPath });
  const left = await docker.listContainers({ all: true }).catch(() => []);
  for (const { Id } of left)
    await docker
      .getContainer(Id)
      .remove({ force: true })
      .catch(() => {});
}

/** Ends the programs that watch commands of `exec`. podman keeps each for five minutes after its command. */
function endWatchers(folder: string): void {
  for (const pid of readdirSync('/proc').filter((name) => /^\d+$/.test(name)))
    try {
      const command = readFileSync(`/proc/${pid}/cmdline`, 'latin1');
      if (command.includes('conmon\0') && command.includes(`${folder}/`)) process.kill(Number(pid), 'SIGKILL');
    } catch {
      // It has ended.
    }
}

function answers(socketPath: string): Promise<boolean> {
  return new Promise((resolve) => {
    const asked = request({ socketPath, path: '/_ping', timeout: 5000 }, (reply) => {
      reply.resume();
      resolve(reply.statusCode === 200);
    });
    asked.on('error', () => resolve(false));
    asked.end();
  });
}

/** Removes the empty control groups in which podman had its containers. Those of another podman are not empty. */
function removeGroups(): void {
  const top = '/sys/fs/cgroup';
  for (const name of ['.', ...readdirSync(top)]) {
    const parent = join(top, name, 'libpod_parent');
    if (!existsSync(parent)) continue;
    const groups = readdirSync(parent, { withFileTypes: true }).filter((entry) => entry.isDirectory());
    for (const group of [...groups.map((entry) => join(parent, entry.name)), parent])
      try {
        rmdirSync(group);
      } catch {
        // It is in use.
      }
  }
}
