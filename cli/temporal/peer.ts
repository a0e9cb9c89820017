import { readdir, readFile, readlink } from 'node:fs/promises';
import { isIPv4, type Socket } from 'node:net';
import { setImmediate as turnOfTheEventLoop, setTimeout as sleep } from 'node:timers/promises';

/** The processes whose connections were allowed before. Workers connect again and again. */
const known = new Set<number>();

/** The kernel's tables change while they are read, so a search that finds nothing is repeated. */
const TRIES = 5;
const RETRY_MS = 50;

type Ends = Pick<Socket, 'localAddress' | 'localPort' | 'remoteAddress' | 'remotePort'>;

/**
 * True when the process at the other end of a loopback connection is one of ours: a process of this user, or of root, in this
 * process's own process namespace. Every sandbox has another namespace. False if this cannot be determined.
 */
export async function isOwnProcess({ localAddress, localPort, remoteAddress, remotePort }: Ends): Promise<boolean> {
  const [server, client] = [endOf(localAddress, localPort), endOf(remoteAddress, remotePort)];
  if (!server || !client) return false;
  const [ends, question] = [`${server.tcp} ${client.tcp}`, Symbol('question')];
  asked.set(ends, question);
  try {
    const isOwn = await findOwnerWithRetry(server, client);
    // If this connection has ended and another one has the same ends, the other one's question arrives in this turn at the latest.
    await turnOfTheEventLoop();
    return isOwn && asked.get(ends) === question;
  } finally {
    if (asked.get(ends) === question) asked.delete(ends);
  }
}

/** The latest question about each pair of ends. An earlier one was about a connection that has ended. */
const asked = new Map<string, symbol>();

async function findOwnerWithRetry(server: End, client: End): Promise<boolean> {
  for (let attempt = 1; attempt <= TRIES; attempt++) {
    const isOwn = await findOwner(server, client);
    if (isOwn !== null) return isOwn;
    if (attempt < TRIES) await sleep(RETRY_MS);
  }
  return false;
}

/** True when one of our processes holds the connection. Returns null when no such process is found. */
async function findOwner(server: End, client: End): Promise<boolean | null> {
  const peers = await clientSides(server, client);
  const [peer] = peers;
  if (!peer) return null;
  // A process of a sandbox that shares this network can use the port of one of our processes with another address.
  if (peers.length > 1 || ![0, process.getuid?.()].includes(peer.uid)) return false;
  const ours = await readlink('/proc/self/ns/pid');
  const pids = (await readdir('/proc')).map(Number).filter((pid) => pid > 0);
  for (const pid of [...known, ...pids.toReversed()]) {
    // This comes first, because an agent can open so many descriptors that listing them takes seconds.
    const isOurs = (await readlink(`/proc/${pid}/ns/pid`).catch(() => null)) === ours;
    if (!isOurs) known.delete(pid);
    if (!isOurs || !(await holds(pid, peer.inode))) continue;
    known.add(pid);
    return true;
  }
  return null;
}

/** Address and port of one end, as the kernel's two tables write them. The second has IPv4 connections of IPv6 sockets. */
type End = { tcp: string; tcp6: string };

function endOf(address = '', port = 0): End | null {
  const ipv4 = address.replace(/^::ffff:/, '');
  if (!isIPv4(ipv4)) return null;
  // The kernel prints an address as a number in the byte order of the machine, which is little-endian.
  const bytes = ipv4
    .split('.')
    .map((byte) => hex(Number(byte), 2))
    .toReversed()
    .join('');
  return { tcp: `${bytes}:${hex(port, 4)}`, tcp6: `0000000000000000FFFF0000${bytes}:${hex(port, 4)}` };
}

const hex = (value: number, digits: number): string => value.toString(16).toUpperCase().padStart(digits, '0');

type ClientSide = { uid: number; inode: string };

/** Returns the user and inode of each socket that is connected from `client` to `server`. */
async function clientSides(server: End, client: End): Promise<ClientSide[]> {
  const found = new Map<string, ClientSide>();
  for (const table of ['tcp', 'tcp6'] as const) {
    for (const row of (await readFile(`/proc/self/net/${table}`, 'utf8').catch(() => '')).split('\n').slice(1)) {
      const [, local, remote, , , , , uid, , inode] = row.trim().split(/\s+/);
      if (local !== client[table] || remote !== server[table] || inode === undefined || inode === '0') continue;
      found.set(inode, { uid: Number(uid), inode });
    }
  }
  return [...found.values()];
}

async function holds(pid: number, inode: string): Promise<boolean> {
  const folder = `/proc/${pid}/fd`;
  const names = await readdir(folder).catch(() => []);
  const links = await Promise.all(names.map((name) => readlink(`${folder}/${name}`).catch(() => '')));
  return links.includes(`socket:[${inode}]`);
}
