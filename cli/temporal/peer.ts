import { readdir, readFile, readlink } from 'node:fs/promises';
import type { Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';

/** The processes whose connections were allowed before. Workers connect again and again. */
const known = new Set<number>();

/** The kernel's tables change while they are read, so an entry that is missing at first is looked for again. */
const LOOKS = 5;
const BETWEEN_LOOKS_MS = 50;

/**
 * Returns whether the process at the other end of a loopback connection is one of ours: a process of this user, or of root, in
 * this process' own process namespace. Every sandbox has another namespace, as user or root. If this cannot be determined,
 * the answer is no.
 */
export async function isOwnProcess({ localPort = 0, remotePort = 0 }: Pick<Socket, 'localPort' | 'remotePort'>): Promise<boolean> {
  for (let look = 1; look <= LOOKS; look++) {
    const isOwn = await lookFor(localPort, remotePort);
    if (isOwn !== null) return isOwn;
    if (look < LOOKS) await sleep(BETWEEN_LOOKS_MS);
  }
  return false;
}

/** Returns null if no process is found that holds the connection. */
async function lookFor(serverPort: number, clientPort: number): Promise<boolean | null> {
  const peer = await clientSide(serverPort, clientPort);
  if (!peer) return null;
  if (![0, process.getuid?.()].includes(peer.uid)) return false;
  const ours = await readlink('/proc/self/ns/pid');
  const pids = (await readdir('/proc')).map(Number).filter((pid) => pid > 0);
  for (const pid of [...known, ...pids.toReversed()]) {
    if (!(await holds(pid, peer.inode))) continue;
    if ((await readlink(`/proc/${pid}/ns/pid`).catch(() => null)) !== ours) return false;
    known.add(pid);
    return true;
  }
  return null;
}

/** Returns the user and the inode of the socket that connected from `clientPort` to `serverPort`. */
async function clientSide(serverPort: number, clientPort: number): Promise<{ uid: number; inode: string } | null> {
  for (const file of ['/proc/self/net/tcp', '/proc/self/net/tcp6']) {
    for (const row of (await readFile(file, 'utf8').catch(() => '')).split('\n').slice(1)) {
      const fields = row.trim().split(/\s+/);
      const [, local = '', remote = '', , , , , uid, , inode] = fields;
      if (portIn(local) !== clientPort || portIn(remote) !== serverPort || inode === undefined || inode === '0') continue;
      return { uid: Number(uid), inode };
    }
  }
  return null;
}

const portIn = (address: string): number => parseInt(address.slice(address.lastIndexOf(':') + 1), 16);

async function holds(pid: number, inode: string): Promise<boolean> {
  const folder = `/proc/${pid}/fd`;
  try {
    const links = await Promise.all((await readdir(folder)).map((name) => readlink(`${folder}/${name}`).catch(() => '')));
    return links.includes(`socket:[${inode}]`);
  } catch {
    known.delete(pid);
    return false;
  }
}
