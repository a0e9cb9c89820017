import { spawnSync } from 'node:child_process';
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  readdirSync,
  rmSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { findCgroupParents, openCgroup, sweepCgroups } from './cgroup.ts';

const LIMITS = { memoryMb: 100, processes: 20, cpus: 0.5 };

/** Many machines have only version 1. This test shows which files of version 2 are read and written, not that a kernel applies them. */
test('with cgroup version 2 a sandbox’s limits are written to the files that the kernel reads, and its kills are read from their counters', () => {
  const all = mkdtempSync(join(tmpdir(), 'trialgate-cgroup-'));
  onTestFinished(() => rmSync(all, { recursive: true }));
  const group = openCgroup({ version: 2, all }, LIMITS);
  const folder = join(all, readdirSync(all)[0] ?? '');
  const written = Object.fromEntries(
    readdirSync(folder).map((name) => [name, readFileSync(join(folder, name), 'utf8')]),
  );
  expect(written).toEqual({
    'memory.max': '104857600',
    'memory.swap.max': '0',
    'pids.max': '20',
    'cpu.max': '50000 100000',
  });
  expect(group.enter).toContain(join(folder, 'cgroup.procs'));
  writeFileSync(join(folder, 'memory.events'), 'low 0\nhigh 0\nmax 31\noom 0\noom_kill 1\noom_group_kill 0\n');
  expect(group.memoryKills()).toEqual({ oomKills: 1, hitMemoryLimit: false });
  writeFileSync(join(folder, 'memory.events'), 'low 0\nhigh 0\nmax 31\noom 2\noom_kill 1\noom_group_kill 0\n');
  expect(group.memoryKills()).toEqual({ oomKills: 1, hitMemoryLimit: true });
});

const parents = await findCgroupParents();
test.skipIf(!parents)(
  'removing a sandbox’s control group removes all of its folders (skipped where this user can make no control group)',
  async () => {
    if (!parents) return;
    const group = openCgroup(parents, LIMITS);
    const files = group.enter.filter((word) => word.endsWith('/cgroup.procs'));
    expect(files.map((file) => existsSync(file))).not.toContain(false);
    await group.remove();
    expect(files.map((file) => existsSync(file))).not.toContain(true);
  },
);

test('a sweep removes old control groups of dead workers, keeps those of living ones, and does not fail on one that is gone meanwhile', () => {
  const all = mkdtempSync(join(tmpdir(), 'trialgate-cgroup-'));
  onTestFinished(() => rmSync(all, { recursive: true }));
  openCgroup({ version: 2, all }, LIMITS);
  const living = readdirSync(all)[0] ?? '';
  const dead = living.replace(`${process.pid}`, `${spawnSync('true').pid}`);
  expect(dead).not.toBe(living);
  const young = 'trialgate-young';
  rmSync(join(all, living), { recursive: true });
  for (const name of [living, dead, young]) mkdirSync(join(all, name));
  for (const name of [living, dead]) utimesSync(join(all, name), 0, 0);
  // This entry is listed and cannot be read any more, like a group that has just ended.
  symlinkSync('nowhere', join(all, 'trialgate-ended'));
  sweepCgroups({ version: 2, all });
  expect(readdirSync(all).toSorted()).toEqual([living, 'trialgate-ended', young].toSorted());
});

test('a control group whose limits cannot be set leaves no folder', () => {
  const memory = mkdtempSync(join(tmpdir(), 'trialgate-cgroup-'));
  onTestFinished(() => rmSync(memory, { recursive: true }));
  mkdirSync(join(memory, 'pids'));
  expect(() =>
    openCgroup({ version: 1, memory, pids: join(memory, 'pids'), cpu: join(memory, 'none') }, LIMITS),
  ).toThrow(/ENOENT/);
  expect(readdirSync(memory, { recursive: true })).toEqual(['pids']);
});
