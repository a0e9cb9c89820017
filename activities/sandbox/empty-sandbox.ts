import { execFile } from 'node:child_process';
import { lchown, mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import type { SandboxKind } from '../../core/run-config/sandbox.ts';
import type { Image } from './backend.ts';
import type { Mount } from './bubblewrap.ts';
import type { Isolation } from './isolation.ts';
import { markerOf } from './names.ts';
import { claimUid } from './own-uid.ts';
import { writeOwner, type Owner } from './owner.ts';
import { openSandboxesFolder } from './sandboxes-folder.ts';
import { discard } from './trash.ts';
import { walkFiles } from './walk-files.ts';

/** The sandbox of an attempt on this host. It is plain data, so that it can travel between activities of the same host. */
export type Sandbox = {
  name: string;
  /** The deployment's folder. */
  home: string;
  root: string;
  /** The agent's working directory. */
  work: string;
  /** The agent's HOME. */
  agentHome: string;
  tmp: string;
  /** The folder that is /dev/shm under bubblewrap. */
  shm: string;
  logs: string;
  /** Its own user when root runs the worker; otherwise null. */
  uid: number | null;
  /** The marker by which its processes are found on this machine. */
  marker: string;
  /** The image whose programs it has; null when it has those of this host. */
  image: Image | null;
  /** Folders of the host that its processes read besides their own. */
  mounts: Mount[];
};

type Options = {
  isolation?: Isolation;
  kind?: SandboxKind;
  image?: Image | null;
  cluster?: Owner['cluster'];
};

/** Makes the empty folders and the user that owns them. */
export async function emptySandbox(
  home: string,
  name: string,
  { isolation, kind = 'bubblewrap', image = null, cluster }: Options = {},
): Promise<Sandbox> {
  const parent = await openSandboxesFolder(home);
  const uid = await claimUid(home, name, isolation);
  await writeOwner(home, name, { uid, kind, cluster });
  const root = join(parent, name);
  const inside = {
    work: join(root, 'work'),
    agentHome: join(root, 'home'),
    tmp: join(root, 'tmp'),
    shm: join(root, 'shm'),
    logs: join(root, 'logs'),
  };
  // The new sandbox must not contain files of an older sandbox of this name. This fails if they cannot be moved away.
  await discard(home, name);
  await mkdir(root, { mode: 0o700 });
  for (const folder of Object.values(inside)) await mkdir(folder);
  return { name, home, root, uid, marker: markerOf(home, name), image, mounts: [], ...inside };
}

/** Makes the sandbox's user the owner of all files in the sandbox. */
export async function handOver(folder: string, uid: number | null): Promise<void> {
  if (uid === null) return;
  for await (const { path } of walkFiles(folder)) await lchown(path, uid, uid);
  await lchown(folder, uid, uid);
}

const run = promisify(execFile);

/**
 * Makes the sandbox's user the owner of all its files. A repository or an image may have thousands, for which a program takes a tenth of the
 * time and does not hold the event loop.
 */
export async function handOverAll({ root, uid, mounts, image }: Sandbox): Promise<void> {
  if (uid === null || (mounts.length === 0 && image === null)) return handOver(root, uid);
  await run('chown', ['-hR', '--', `${uid}:${uid}`, root], { maxBuffer: 2 ** 24 });
}
