import { execFile, spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  renameSync,
  rmdirSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { createServer } from 'node:net';
import { hostname, tmpdir, userInfo } from 'node:os';
import { join } from 'node:path';
import { randomBytes } from 'node:crypto';
import { promisify } from 'node:util';
import { INSTALLS } from '../../../cli/folders.ts';
import { unpackDebianPackages } from '../../../cli/install/debian-package.ts';
import { until } from './until.ts';

const run = promisify(execFile);

const FOLDER = join(INSTALLS.root, 'slurm');
const LOG = join(INSTALLS.root, 'logs/slurm.log');
/** SLURM and munge with all that they need beside the system's own libraries. */
const PACKAGES = [
  ...['slurmctld', 'slurmd', 'slurm-client', 'slurm-wlm-basic-plugins', 'munge', 'libmunge2', 'libhwloc15'],
  ...['libelogind0', 'liblua5.1-0', 'libnewt0.52'],
];
const DAEMONS = ['slurmctld', 'slurmd', 'slurmstepd'];
const CLIENTS = ['srun', 'squeue', 'scancel', 'scontrol', 'sinfo'];
const START_MS = 60_000;

export type Slurm = {
  /** The folder with the programs of its clients, for PATH. */
  bin: string;
  /** Runs a client and returns what it printed. */
  ask: (program: string, ...args: string[]) => Promise<string>;
} & AsyncDisposable;

/** Returns why SLURM cannot be started here; null where it can. */
export function noSlurm(): string | null {
  return existsSync('/usr/bin/apt-get') && existsSync('/usr/bin/dpkg')
    ? null
    : "SLURM is unpacked from Debian's packages, and apt-get is not here";
}

/** Starts a cluster of one node, this machine. Disposal ends its jobs and its programs, and removes what it made. */
export async function startSlurm(signal: AbortSignal): Promise<Slurm> {
  await fetchSlurm(signal);
  const folder = mkdtempSync(join(tmpdir(), 'trialgate-slurm-'));
  // munge refuses a folder that not all users can pass through.
  chmodSync(folder, 0o755);
  const root = join(FOLDER, 'root');
  const libraries = join(root, 'usr/lib', libraryFolder(root));
  const node = `trialgate-${process.pid}-${randomBytes(3).toString('hex')}`;
  const env = {
    PATH: `${join(root, 'usr/bin')}:/usr/sbin:/usr/bin:/sbin:/bin`,
    LD_LIBRARY_PATH: `${libraries}:${join(libraries, 'slurm-wlm')}`,
    SLURM_CONF: join(folder, 'slurm.conf'),
  };
  const groups = hasGroups();
  for (const name of ['munge', 'state', 'spool', 'bin']) mkdirSync(join(folder, name), { mode: 0o755 });
  writeFileSync(join(folder, 'munge/key'), randomBytes(1024), { mode: 0o400 });
  writeFileSync(join(folder, 'slurm.conf'), await slurmConf({ folder, node, plugins: join(libraries, 'slurm-wlm') }));
  if (groups)
    writeFileSync(
      join(folder, 'cgroup.conf'),
      'CgroupPlugin=cgroup/v1\nCgroupMountpoint=/sys/fs/cgroup\nConstrainRAMSpace=yes\nMinRAMSpace=10\n',
    );
  for (const name of CLIENTS) {
    const exports = Object.entries(env).map(([key, value]) => `${key}='${value}'`);
    const script = `#!/bin/sh\nexport ${exports.join(' ')}\nexec ${join(root, 'usr/bin', name)} "$@"\n`;
    writeFileSync(join(folder, 'bin', name), script, { mode: 0o755 });
  }

  const programs: Program[] = [];
  const start = (command: string, ...args: string[]): void => void programs.push(startProgram(command, args, env));
  const ask = async (program: string, ...args: string[]): Promise<string> =>
    (await run(join(folder, 'bin', program), args, { timeout: 20_000 })).stdout;
  const remove = async (): Promise<void> => {
    clearInterval(resuming);
    await ask('scancel', '--signal=KILL', `--user=${userInfo().uid}`).catch(() => '');
    await until(async () => (await ask('squeue', '--noheader').catch(() => '')).trim() === '', 10_000).catch(() => {});
    for (const { child, ended } of programs.toReversed()) {
      child.kill('SIGTERM');
      await Promise.race([ended, once(AbortSignal.timeout(5000), 'abort')]);
      child.kill('SIGKILL');
      await ended;
    }
    if (groups) removeGroups(`slurm_${node}`);
    rmSync(folder, { recursive: true, force: true, maxRetries: 5 });
  };
  // SLURM 22.05 may drain the node ("Kill task failed") when a cancel meets the start of a step. An administrator resumes it then.
  const resuming = setInterval(() => void resume().catch(() => {}), 2000);
  const resume = async (): Promise<void> => {
    if ((await ask('sinfo', '--noheader', '--format=%T')).includes('drain'))
      await ask('scontrol', 'update', `nodename=${node}`, 'state=resume');
  };
  const working = (probe: () => Promise<boolean> | boolean): Promise<unknown> =>
    until(() => {
      const dead = programs.find(({ child }) => child.exitCode !== null || child.signalCode !== null);
      if (dead) throw new Error(`${dead.child.spawnfile} ended: ${dead.said()}`);
      return probe();
    }, START_MS);
  try {
    const munge = join(folder, 'munge');
    start(
      join(root, 'usr/sbin/munged'),
      ...['--foreground', `--key-file=${munge}/key`, `--socket=${folder}/munge.sock`, `--pid-file=${munge}/pid`],
      ...[`--log-file=${munge}/log`, `--seed-file=${munge}/seed`],
    );
    await working(() => existsSync(join(folder, 'munge.sock')));
    start(join(root, 'usr/sbin/slurmctld'), '-D', '-i', '-c');
    start(join(root, 'usr/sbin/slurmd'), '-D', '-N', node, '-d', join(root, 'usr/sbin/slurmstepd'));
    await working(async () => (await ask('sinfo', '--noheader', '--format=%T').catch(() => '')).trim() === 'idle');
  } catch (error) {
    await remove();
    throw error;
  }
  return { bin: join(folder, 'bin'), ask, [Symbol.asyncDispose]: remove };
}

type Program = { child: ChildProcess; ended: Promise<unknown>; said: () => string };

/** Starts a program that ends with this process. */
function startProgram(command: string, args: string[], env: NodeJS.ProcessEnv): Program {
  const child = spawn('setpriv', ['--pdeathsig', 'KILL', command, ...args], {
    env,
    stdio: ['ignore', 'ignore', 'pipe'],
  });
  let said = '';
  child.stderr.on('data', (chunk: Buffer) => (said = `${said}${chunk.toString()}`.slice(-4000)));
  return { child, ended: once(child, 'exit'), said: () => said };
}

async function slurmConf(place: { folder: string; node: string; plugins: string }): Promise<string> {
  const { folder, node, plugins } = place;
  const user = userInfo().username;
  const groups = hasGroups();
  return Object.entries({
    ClusterName: 'trialgate',
    SlurmctldHost: 'localhost(127.0.0.1)',
    SlurmctldPort: await freePort(),
    SlurmdPort: await freePort(),
    SlurmUser: user,
    SlurmdUser: user,
    AuthType: 'auth/munge',
    CredType: 'cred/munge',
    AuthInfo: `socket=${folder}/munge.sock`,
    PluginDir: plugins,
    StateSaveLocation: `${folder}/state`,
    SlurmdSpoolDir: `${folder}/spool`,
    SlurmctldPidFile: `${folder}/slurmctld.pid`,
    SlurmdPidFile: `${folder}/slurmd.pid`,
    ProctrackType: groups ? 'proctrack/cgroup' : 'proctrack/linuxproc',
    TaskPlugin: groups ? 'task/cgroup' : 'task/none',
    JobAcctGatherType: 'jobacct_gather/none',
    SelectType: 'select/cons_tres',
    SelectTypeParameters: 'CR_CPU_Memory',
    MpiDefault: 'none',
    SwitchType: 'switch/none',
    ReturnToService: 2,
    MailProg: '/bin/true',
    // The node says that it has more than this machine, so that many jobs run at the same time.
    SlurmdParameters: 'config_overrides',
    NodeName: `${node} NodeHostname=${hostname()} NodeAddr=127.0.0.1 CPUs=64 RealMemory=64000`,
    PartitionName: `main Nodes=${node} Default=YES MaxTime=INFINITE State=UP`,
  })
    .map(([key, value]) => `${key}=${value}\n`)
    .join('');
}

/** True where SLURM can make control groups, which its plugin for version 1 does without systemd. */
const hasGroups = (): boolean =>
  process.getuid?.() === 0 && existsSync('/sys/fs/cgroup/memory') && existsSync('/sys/fs/cgroup/freezer');

async function fetchSlurm(signal: AbortSignal): Promise<void> {
  if (existsSync(join(FOLDER, 'root/usr/bin/srun'))) return;
  mkdirSync(INSTALLS.root, { recursive: true });
  const partial = mkdtempSync(join(INSTALLS.root, 'slurm-'));
  try {
    if (!(await unpackDebianPackages(PACKAGES, partial, LOG, signal)))
      throw new Error(`SLURM cannot be fetched from Debian's packages: see ${LOG}`);
    // Debian's alternatives give the programs these names. SLURM finds out by its own name which program it is.
    for (const name of DAEMONS) symlinkSync(`${name}-wlm`, join(partial, 'root/usr/sbin', name));
    if (!existsSync(FOLDER)) renameSync(partial, FOLDER);
  } finally {
    rmSync(partial, { recursive: true, force: true });
  }
}

/** Returns the name of the machine's folder of libraries, such as `x86_64-linux-gnu`. */
function libraryFolder(root: string): string {
  const found = readdirSync(join(root, 'usr/lib')).find((name) => name.endsWith('-linux-gnu'));
  if (found === undefined) throw new Error(`${root}/usr/lib has no folder of libraries`);
  return found;
}

async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  server.close();
  if (address === null || typeof address === 'string') throw new Error('a server has no port');
  return address.port;
}

/** Removes the empty control groups that SLURM leaves. */
function removeGroups(name: string): void {
  for (const controller of readdirSync('/sys/fs/cgroup')) {
    const folder = join('/sys/fs/cgroup', controller, name);
    if (!existsSync(folder)) continue;
    const below = readdirSync(folder, { recursive: true, withFileTypes: true }).filter((one) => one.isDirectory());
    for (const path of [...below.map((one) => join(one.parentPath, one.name)).toReversed(), folder])
      try {
        rmdirSync(path);
      } catch {
        // It is in use.
      }
  }
}
