import { execFile } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import Docker from 'dockerode';
import type { SandboxBackend } from '../../activities/sandbox/backend.ts';
import { LABELS } from '../../activities/sandbox/container/run-container.ts';
import { homeDigest } from '../../activities/sandbox/names.ts';
import { processTable } from '../../activities/sandbox/process-table.ts';

const run = promisify(execFile);

/** The numbers of things that sandboxes can leave behind. */
export type Left = Record<'processes' | 'containers' | 'folders' | 'records' | 'mounts' | 'cgroups', number>;

/** Returns the host's processes of a deployment's sandboxes: theirs, and the engine's and the cluster's own for them. */
export async function processesOf(backend: SandboxBackend, home: string): Promise<number[]> {
  const marks = [homeDigest(home), ...(await containersOf(backend, home))];
  const rows = processTable();
  const children = Map.groupBy(rows, ({ parent }) => parent);
  const found = new Set(rows.map(({ pid }) => pid).filter((pid) => pid !== process.pid && isMarked(pid, marks)));
  for (const pid of found) for (const child of children.get(pid) ?? []) found.add(child.pid);
  return [...found];
}

function isMarked(pid: number, marks: string[]): boolean {
  const text = textOf(`/proc/${pid}/cmdline`) + textOf(`/proc/${pid}/environ`);
  return marks.some((mark) => text.includes(mark));
}

async function containersOf({ kind }: SandboxBackend, home: string): Promise<string[]> {
  if (kind !== 'container') return [];
  const label = `${LABELS.home}=${homeDigest(home)}`;
  return (await new Docker().listContainers({ all: true, filters: { label: [label] } })).map(({ Id }) => Id);
}

/** Returns the control groups that sandboxes or containers may have. */
export async function controlGroups(): Promise<Set<string>> {
  const { stdout } = await run('find', [
    '/sys/fs/cgroup',
    '-type',
    'd',
    '-regex',
    '.*/\\(trialgate\\|libpod\\)-[^/]*',
  ]).catch((error: { stdout?: string }) => ({ stdout: error.stdout ?? '' }));
  return new Set(stdout.split('\n').filter(Boolean));
}

/** Counts what is left a moment after the last sandbox was removed. Groups of other programs' sandboxes have processes, and do not count. */
export async function leftOf(backend: SandboxBackend, home: string, groupsBefore: Set<string>): Promise<Left> {
  await sleep(2000);
  const folders = (await readdir(join(home, 'sandboxes')).catch(() => [])).filter((name) => !name.startsWith('.'));
  const groups = [...(await controlGroups())].filter(
    (group) => !groupsBefore.has(group) && textOf(join(group, 'cgroup.procs')) === '',
  );
  return {
    processes: (await processesOf(backend, home)).length,
    containers: (await containersOf(backend, home)).length,
    folders: folders.length,
    records: (await backend.find(home)).length,
    mounts: textOf('/proc/mounts').split(home).length - 1,
    cgroups: groups.length,
  };
}

/** Returns the memory of processes in MiB, each page divided among all processes that share it. */
export function memoryOf(pids: number[]): number {
  const kib = pids.map((pid) => Number(/^Pss: +(\d+)/m.exec(textOf(`/proc/${pid}/smaps_rollup`))?.[1] ?? 0));
  return kib.reduce((sum, each) => sum + each, 0) / 1024;
}

function textOf(file: string): string {
  try {
    return readFileSync(file, 'latin1');
  } catch {
    return '';
  }
}
