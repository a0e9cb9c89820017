import { chmod, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { openCluster } from './cluster.ts';

/** Returns a PATH with programs of SLURM that stand in for a cluster with one job, `42`, which `scancel` ends at its `works`-th call. */
async function clusterWithOneJob({
  works,
}: {
  works: number;
}): Promise<{ path: string; calls: () => Promise<string[]> }> {
  const folder = await mkdtemp(join(tmpdir(), 'trialgate-slurm-programs-'));
  onTestFinished(() => rm(folder, { recursive: true }));
  const programs = {
    srun: 'exit 1',
    scontrol: 'echo "SLURM_VERSION = 22.05"',
    sinfo: 'echo 1',
    squeue: `test -e ${folder}/ended || echo "42|RUNNING|trialgate:one"`,
    scancel: `echo "$*" >> ${folder}/calls
test "$(wc -l < ${folder}/calls)" -ge ${works} || { echo "Unable to contact the controller" >&2; exit 1; }
touch ${folder}/ended`,
  };
  for (const [name, script] of Object.entries(programs)) {
    await writeFile(join(folder, name), `#!/bin/sh\n${script}\n`);
    await chmod(join(folder, name), 0o755);
  }
  return {
    path: `${folder}:${process.env['PATH']}`,
    calls: async () => (await readFile(join(folder, 'calls'), 'utf8')).trim().split('\n'),
  };
}

test('a job is cancelled again when the controller refused the first time, and its end is awaited', async () => {
  const { path, calls } = await clusterWithOneJob({ works: 3 });
  const cluster = await openCluster({ kind: 'slurm' }, { PATH: path });
  await cluster.end('trialgate:one');
  const made = await calls();
  expect(made).toHaveLength(3);
  expect(made[0]).toBe('--signal=KILL 42.0');
});

test('jobs of other names are not cancelled', async () => {
  const { path, calls } = await clusterWithOneJob({ works: 1 });
  const cluster = await openCluster({ kind: 'slurm' }, { PATH: path });
  await cluster.end('trialgate:other');
  await expect(calls()).rejects.toMatchObject({ code: 'ENOENT' });
});
