import { execFile } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { existsSync, mkdirSync, readFileSync, readdirSync, rmdirSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import { isRunning, startOf } from './process-table.ts';

const run = promisify(execFile);

/** The control groups of this machine below which sandboxes get their own groups. Version 1 has a separate tree for each resource. */
export type CgroupParents = { version: 2; all: string } | { version: 1; memory: string; pids: string; cpu: string };

export type CgroupLimits = { memoryMb: number; processes: number; cpus: number };

/** The kernel's actions on a sandbox for lack of memory. */
export type MemoryKills = {
  /** The number of the sandbox's processes that the kernel killed. It is null if no cgroup reports it. */
  oomKills: number | null;
  /** True when the sandbox was at its own limit. If not, the machine had no memory left. */
  hitMemoryLimit: boolean;
};

export type Cgroup = {
  /** The words to put before the command. They join the group and then become the command. */
  enter: string[];
  /** Moves a process that runs into the group. Its later children are in the group too. */
  join: (pid: number) => void;
  memoryKills: () => MemoryKills;
  /** Ends all processes that are still in the group. */
  remove: () => Promise<void>;
};

export const NO_MEMORY_KILLS: MemoryKills = { oomKills: null, hitMemoryLimit: false };

const PREFIX = 'trialgate-';
/** A group's name has its owner's process id and start time. */
const NAME = /^trialgate-(\d+)-(\d+)-/;
/** The kernel charges at most this many bytes of memory at once. */
const BATCH = 64 * 4096;
const PERIOD_US = 100_000;
const ENTER = 'until [ "$1" = -- ]; do echo 0 > "$1" || exit 125; shift; done; shift; exec "$@"';
/** A younger group may still be empty because another worker has just made it, perhaps in a container where this one does not see its process. */
const STALE_MS = 60_000;

/** Returns null where this machine or this user cannot make control groups that limit memory, processes and processor time. */
export async function findCgroupParents(): Promise<CgroupParents | null> {
  for (const parents of candidates()) {
    try {
      sweepCgroups(parents);
      const probe = openCgroup(parents, { memoryMb: 64, processes: 8, cpus: 1 });
      const [command = '', ...args] = [...probe.enter, 'true'];
      await run(command, args).finally(probe.remove);
      return parents;
    } catch {
      continue;
    }
  }
  return null;
}

/**
 * Opens a control group with these limits.
 * @throws when the kernel refuses the group or a limit
 */
export function openCgroup(parents: CgroupParents, limits: CgroupLimits): Cgroup {
  const name = `${PREFIX}${process.pid}-${startOf(process.pid) ?? 0}-${randomUUID()}`;
  const folders = foldersOf(parents).map((parent) => join(parent, name));
  const memory = join(parents.version === 2 ? parents.all : parents.memory, name);
  const remove = async (): Promise<void> => {
    if (parents.version === 2) writeIfThere(join(memory, 'cgroup.kill'), '1');
    await Promise.all(folders.map(removeFolder));
  };
  try {
    for (const folder of folders) mkdirSync(folder);
    setLimits(parents, name, limits);
  } catch (error) {
    folders.forEach(removeNow);
    throw error;
  }
  return {
    enter: ['/bin/sh', '-c', ENTER, 'sh', ...folders.map((folder) => join(folder, 'cgroup.procs')), '--'],
    join: (pid) => folders.forEach((folder) => writeFileSync(join(folder, 'cgroup.procs'), String(pid))),
    memoryKills: () => memoryKillsIn(memory, parents.version),
    remove,
  };
}

function setLimits(parents: CgroupParents, name: string, { memoryMb, processes, cpus }: CgroupLimits): void {
  const bytes = String(Math.ceil(memoryMb) * 2 ** 20);
  const quota = String(Math.max(1000, Math.round(cpus * PERIOD_US)));
  if (parents.version === 2) {
    const folder = join(parents.all, name);
    writeFileSync(join(folder, 'memory.max'), bytes);
    writeIfThere(join(folder, 'memory.swap.max'), '0');
    writeFileSync(join(folder, 'pids.max'), String(processes));
    writeFileSync(join(folder, 'cpu.max'), `${quota} ${PERIOD_US}`);
  } else {
    writeFileSync(join(parents.memory, name, 'memory.limit_in_bytes'), bytes);
    writeIfThere(join(parents.memory, name, 'memory.memsw.limit_in_bytes'), bytes);
    writeFileSync(join(parents.pids, name, 'pids.max'), String(processes));
    writeFileSync(join(parents.cpu, name, 'cpu.cfs_period_us'), String(PERIOD_US));
    writeFileSync(join(parents.cpu, name, 'cpu.cfs_quota_us'), quota);
  }
}

/** Reads the counters of a group's folder, which is one of the memory controller in version 1. A folder that is gone has none. */
export const memoryKillsIn = (folder: string, version: 1 | 2): MemoryKills =>
  version === 2 ? killsOfVersion2(folder) : killsOfVersion1(folder);

/** `oom` counts how often the group reached its own limit and the kernel could free nothing. */
function killsOfVersion2(folder: string): MemoryKills {
  const events = read(join(folder, 'memory.events'));
  return { oomKills: counter(events, 'oom_kill'), hitMemoryLimit: counter(events, 'oom') > 0 };
}

function killsOfVersion1(folder: string): MemoryKills {
  const oomKills = counter(read(join(folder, 'memory.oom_control')), 'oom_kill');
  const hitMemoryLimit = ['memory', 'memory.memsw'].some((name) => {
    const [refusals = 0, peak = 0, limit = 0] = ['failcnt', 'max_usage_in_bytes', 'limit_in_bytes'].map((file) =>
      Number(read(join(folder, `${name}.${file}`))),
    );
    // Some kernels do not count their refusals. Memory is charged in batches, so the last one may be missing at the limit.
    return refusals > 0 || (limit > 0 && peak > limit - BATCH);
  });
  return { oomKills, hitMemoryLimit };
}

const counter = (text: string, name: string): number =>
  Number(new RegExp(`^${name} (\\d+)$`, 'm').exec(text)?.[1] ?? 0);

function read(file: string): string {
  try {
    return readFileSync(file, 'utf8');
  } catch {
    return '';
  }
}

/** A kernel may be built without this controller. */
function writeIfThere(file: string, value: string): void {
  try {
    writeFileSync(file, value);
  } catch {
    // Without swap there is nothing to limit. Without cgroup.kill the processes are ended in another way.
  }
}

/** A killed process stays in its group for a moment. */
async function removeFolder(folder: string): Promise<void> {
  for (let round = 0; round < 100 && !removeNow(folder); round += 1) await sleep(5);
}

function removeNow(folder: string): boolean {
  try {
    rmdirSync(folder);
    return true;
  } catch (error) {
    return error instanceof Error && 'code' in error && error.code === 'ENOENT';
  }
}

const foldersOf = (parents: CgroupParents): string[] =>
  parents.version === 2 ? [parents.all] : [parents.memory, parents.pids, parents.cpu];

/**
 * Removes the groups that dead workers left behind. The kernel removes only empty groups. A living worker's group may be empty before
 * its counters have been read. Other workers remove their groups at the same time, so a group that is gone is no failure.
 */
export function sweepCgroups(parents: CgroupParents): void {
  for (const parent of foldersOf(parents)) {
    const names = existsSync(parent) ? readdirSync(parent).filter((name) => name.startsWith(PREFIX)) : [];
    names.filter((name) => isLeft(parent, name)).forEach((name) => removeNow(join(parent, name)));
  }
}

function isLeft(parent: string, name: string): boolean {
  const made = statSync(join(parent, name), { throwIfNoEntry: false })?.mtimeMs;
  if (made === undefined || Date.now() - made < STALE_MS) return false;
  const [, pid, started] = NAME.exec(name) ?? [];
  return pid === undefined || started === undefined || !isRunning(Number(pid), started);
}

/**
 * Returns the candidates in order of preference. Below the worker's own group, the limits of the worker apply to its sandboxes too. With
 * version 2 the kernel allows that only where the group has no processes of its own, which is so in a container but not under systemd:
 * there, root's sandboxes get groups at the top, outside of the unit's limits.
 */
function candidates(): CgroupParents[] {
  const mounts = read('/proc/self/mountinfo').split('\n').flatMap(parseMount);
  const own = read('/proc/self/cgroup')
    .split('\n')
    .map((line) => line.split(':'));
  const ownPath = (controller: string): string =>
    own.find(([, names = '']) => names.split(',').includes(controller))?.[2] ?? '/';
  const unified = mounts.find(({ type }) => type === 'cgroup2');
  const found: CgroupParents[] = [];
  if (unified) {
    for (const all of new Set([join(unified.folder, ownPath('')), unified.folder])) {
      enableControllers(all);
      found.push({ version: 2, all });
    }
  }
  const parentOf = (controller: string): string | undefined => {
    const mount = mounts.find(({ type, options }) => type === 'cgroup' && options.includes(controller));
    return mount && join(mount.folder, ownPath(controller));
  };
  const [memory, pids, cpu] = [parentOf('memory'), parentOf('pids'), parentOf('cpu')];
  if (memory && pids && cpu) found.push({ version: 1, memory, pids, cpu });
  return found;
}

/** The kernel refuses this for a group that has processes of its own, unless it is the topmost group. */
function enableControllers(folder: string): void {
  writeIfThere(join(folder, 'cgroup.subtree_control'), '+memory +pids +cpu');
}

function parseMount(line: string): { folder: string; type: string; options: string[] }[] {
  const [before = '', after = ''] = line.split(' - ');
  const [type = '', , options = ''] = after.split(' ');
  const folder = before.split(' ')[4];
  return folder && type.startsWith('cgroup') ? [{ folder, type, options: options.split(',') }] : [];
}
