/**
 * Replays the findings A2, A8, A10, A12, A13 and A16 (system calls) from inside real sandboxes: files that prevent a sandbox's verdict or removal,
 * use of the machine's resources, inherited descriptors, system calls, and runs without bubblewrap.
 *
 *   node bench/attacks/isolation.ts [--folders 0]
 *
 * Exits with 1 if an attack succeeded. It runs unchanged on commits from 45dec46 on, to show which attacks succeeded before. As root it runs
 * itself again as another user, to test a worker that is not root. `--folders 0` leaves out A13, which took seven minutes before.
 */
import { execFile, spawnSync } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { chmodSync, copyFileSync, existsSync, globSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import type { Sandbox } from '../../activities/sandbox/empty-sandbox.ts';
import { destroySandbox } from '../../activities/sandbox/destroy-sandbox.ts';
import { isolation, type Isolation } from '../../activities/sandbox/isolation.ts';
import { sweepSandboxes } from '../../activities/sandbox/sweep-sandboxes.ts';
import {
  isolations,
  sandboxWith,
  shell,
  specOf,
  taskWith,
  temporaryHome,
} from '../../tests/support/harness/sandbox-fixtures.ts';
import { verify } from '../../activities/sandbox/verify.ts';
import { INSTALLS } from '../../cli/folders.ts';
import { shutdownSignal } from '../../cli/signals.ts';
import { withTemporaryStack } from '../../tests/support/harness/temporary-deployment.ts';
import { optionsOf } from '../options.ts';
import { reportAttacks, type Attack } from './report.ts';
import { openBackend } from '../../activities/sandbox/backends.ts';
import { bubblewrapBackend } from '../../activities/sandbox/bubblewrap-backend.ts';

const backend = await openBackend();

const run = promisify(execFile);
const AS_USER = 'TRIALGATE_ATTACK_AS_USER';
const FOLDERS = process.env[AS_USER] ? 0 : optionsOf(import.meta.url, { folders: 200_000 }).folders;
const USER = 61_999;
const signal = shutdownSignal();
const python = (code: string): string => `python3 -c '${code.trim()}'`;
const row = (attack: Omit<Attack, 'tried' | 'held'>, held: boolean): Attack => ({
  ...attack,
  tried: 1,
  held: held ? 1 : 0,
});

/** Runs `body` with a sandbox in a folder of its own, which is removed with any content. */
async function withSandbox<T>(body: (sandbox: Sandbox) => Promise<T>): Promise<T> {
  const { home } = await temporaryHome();
  try {
    return await body(await sandboxWith(home, { 'solution.py': '' }));
  } finally {
    spawnSync('chmod', ['-R', 'u+rwX', home]);
    spawnSync('rm', ['-rf', home]);
  }
}

const LEFT = [
  {
    attack: 'folders nested deeper than a path may be long',
    code: 'for _ in range(40):\n    os.mkdir("d" * 250)\n    os.chdir("d" * 250)',
  },
  {
    attack: 'a folder without permissions',
    code: 'os.makedirs("closed/inner")\nos.chmod("closed/inner", 0)\nos.chmod("closed", 0)',
  },
  { attack: 'a folder whose name is not UTF-8', code: 'os.makedirs(b"\\xff\\xfe/\\x80")' },
];

/** A2: The agent and its verifier leave these files. Afterwards there must be a verdict, no sandbox, and a worker that starts. */
async function leaveFiles(here: Isolation, { attack, code }: (typeof LEFT)[number], who: string): Promise<Attack> {
  const leave = python(`import os\n${code}`);
  return withSandbox(async (sandbox) => {
    const { home } = sandbox;
    await shell(here, sandbox, leave);
    const task = await taskWith(home, `cd $LOGS_DIR && ${leave}; echo 1 > $LOGS_DIR/verifier/reward.txt`);
    const verdict = await verify({ task, sandbox, backend: bubblewrapBackend(here), signal }).then(
      () => 'judged',
      (error: unknown) => `not judged (${nameOf(error)})`,
    );
    const removed = await destroySandbox({ backend, home, trialId: 't', attempt: 1 }).then(
      () => 'removed',
      (error: unknown) => `not removed (${nameOf(error)})`,
    );
    orphan(home);
    const started = await sweepSandboxes(home).then(
      () => 'starts',
      () => 'does not start',
    );
    const gone = !(await readdir(join(home, 'sandboxes'))).some((name) => name.startsWith('t.1'));
    const held = verdict === 'judged' && removed === 'removed' && started === 'starts' && gone;
    return row(
      {
        id: 'A2',
        severity: 'critical',
        attack: `leaves ${attack} (${who})`,
        note: held ? '' : `${verdict}, ${removed}, a worker ${started}`,
      },
      held,
    );
  });
}

/** Makes the sandboxes look as after the death of the worker that made them. */
function orphan(home: string): void {
  const { pid } = spawnSync('true');
  for (const file of globSync(join(home, 'sandboxes/.owners/*')))
    writeFileSync(file, JSON.stringify({ ...JSON.parse(readFileSync(file, 'utf8')), pid }));
}

const nameOf = (error: unknown): string => (error instanceof Error ? error.name : String(error));

/** A13: An agent leaves very many folders. */
async function manyFolders(here: Isolation, count: number): Promise<Attack> {
  return withSandbox(async (sandbox) => {
    const made = await shell(here, sandbox, python(`import os\nfor i in range(${count}): os.mkdir(str(i))`), {
      seconds: 300,
    });
    const task = await taskWith(sandbox.home, 'echo 1 > $LOGS_DIR/verifier/reward.txt');
    const start = performance.now();
    await verify({ task, sandbox, backend: bubblewrapBackend(here), signal }).catch(() => {});
    await destroySandbox({ backend, home: sandbox.home, trialId: 't', attempt: 1 }).catch(() => {});
    const seconds = (performance.now() - start) / 1000;
    const note = `${seconds.toFixed(0)} s to judge and remove; the agent ${made.reason}`;
    return row(
      {
        id: 'A13',
        severity: 'medium',
        attack: `leaves ${count} folders: judging and removing them takes more than 60 s`,
        note,
      },
      seconds < 60,
    );
  });
}

/** A8: The three sandboxes want everything at once. A sandbox without a limit on a resource gets all of it. */
async function exhaustResources(here: Isolation): Promise<Attack[]> {
  const memory = await withSandbox(async (sandbox) => {
    const code =
      'import os\nheld = []\nfor _ in range(90):\n    held.append(os.memfd_create("x"))\n    os.write(held[-1], bytes(16 * 2**20))\n    print(len(held) * 16, flush=True)\nimport time\ntime.sleep(2)';
    const { stdout } = await shell(here, sandbox, python(code), { ...disk(64), memoryMb: 512, seconds: 60 });
    const taken = Number(stdout.trim().split('\n').at(-1));
    return row(
      {
        id: 'A8',
        severity: 'high',
        attack: '1,440 MiB of files in memory at a limit of 512',
        note: `it got ${taken} MiB`,
      },
      taken <= 512,
    );
  });
  const storage = await withSandbox(async (sandbox) => {
    // This is the rate at which a disk of 150 MiB/s would take the data.
    await shell(here, sandbox, 'for i in $(seq 40); do head -c 60M /dev/zero > file-$i; sleep 0.4; done', {
      ...disk(64),
      seconds: 120,
    });
    const mib = globSync(`${sandbox.work}/file-*`).reduce((sum, file) => sum + statSync(file).size, 0) / 2 ** 20;
    return row(
      {
        id: 'A8',
        severity: 'high',
        attack: '2,400 MiB of files at `storage_mb` 64',
        note: `it wrote ${Math.round(mib)} MiB before it was ended`,
      },
      mib < MOST_DISK_MIB,
    );
  });
  const deleted = await withSandbox(async (sandbox) => {
    const code =
      'import os, time\nheld = []\nfor _ in range(40):\n    held.append(open("x", "wb", 0))\n    os.unlink("x")\n    held[-1].write(bytes(60 * 2**20))\n    print(len(held) * 60, flush=True)\n    time.sleep(0.4)';
    const { stdout } = await shell(here, sandbox, python(code), { ...disk(64), seconds: 120 });
    const mib = Number(stdout.trim().split('\n').at(-1));
    return row(
      {
        id: 'A8',
        severity: 'high',
        attack: '2,400 MiB of deleted files that stay open, at `storage_mb` 64',
        note: `it wrote ${mib} MiB before it was ended`,
      },
      mib < MOST_DISK_MIB,
    );
  });
  const cores = await withSandbox(async (sandbox) => {
    const burn = 'for i in $(seq 16); do timeout 4 bash -c "while :; do :; done" & done; wait; times';
    const { stdout } = await shell(here, sandbox, burn, { cpus: 0.25, seconds: 60 } as object);
    const [minutes = 0, seconds = 0] = (stdout.trim().split('\n').at(-1) ?? '').split(/[ms ]+/).map(Number);
    const used = (minutes * 60 + seconds) / 4;
    return row(
      { id: 'A8', severity: 'high', attack: 'sixteen busy loops at `cpus` 0.25', note: `${used.toFixed(2)} cores` },
      used < 0.4,
    );
  });
  return [memory, storage, deleted, cores];
}

/** Disk use is counted every two seconds, and these attacks write 150 MiB a second at most. */
const MOST_DISK_MIB = 64 + 2 * 150;

/** A8: The process that starts all sandboxes of a worker counts descriptors where there are no control groups. Others must not wait for that. */
async function openManyDescriptors(here: Isolation): Promise<Attack> {
  return withSandbox((sandbox) =>
    withSandbox(async (other) => {
      const code =
        'import os, time\nfor _ in range(59):\n    if os.fork() == 0: break\ntry:\n    for number in range(3, 1000000): os.dup2(1, number)\nexcept OSError: pass\ntime.sleep(60)';
      const over = new AbortController();
      const attacking = shell({ ...here, cgroup: null }, sandbox, python(code), {
        processes: 64,
        memoryMb: 4096,
        seconds: 30,
      }).finally(() => over.abort());
      let slowest = 0;
      while (!over.signal.aborted) {
        const start = performance.now();
        await shell(here, other, 'true');
        slowest = Math.max(slowest, performance.now() - start);
      }
      const { reason } = await attacking;
      const attack =
        'opens descriptors in 60 processes without control groups: other sandboxes wait more than 3 s to start';
      return row(
        { id: 'A8', severity: 'high', attack, note: `at most ${(slowest / 1000).toFixed(1)} s; the agent ${reason}` },
        slowest < 3000,
      );
    }),
  );
}

/** The setting had another name in older commits. */
const disk = (mb: number): object => ({ fileMb: mb, storageMb: mb });

/** A12: An agent inherits open descriptors of the worker. */
async function inheritDescriptors(here: Isolation): Promise<Attack> {
  return withSandbox(async (sandbox) => {
    const secret = join(sandbox.home, 'secret');
    const token = randomUUID();
    writeFileSync(secret, token, { mode: 0o600 });
    const { signal: _, ...spec } = specOf(here, sandbox, 'cat <&20');
    const launcher = new URL('../../activities/sandbox/launcher.ts', import.meta.url).href;
    const code = `import { launch } from ${JSON.stringify(launcher)};
      console.log((await launch({ ...${JSON.stringify(spec)}, signal: new AbortController().signal })).stdout);`;
    const { stdout } = await run('bash', [
      '-c',
      'exec 20< "$0"; exec "$@"',
      secret,
      process.execPath,
      '--input-type=module',
      '-e',
      code,
    ]);
    return row(
      { id: 'A12', severity: 'medium', attack: 'reads a file that the worker inherited as descriptor 20' },
      !stdout.includes(token),
    );
  });
}

/** System calls that the kernel itself must not answer, with their numbers on x86-64 and their arguments. */
const CALLS = {
  unshare: [272, 0x10000000],
  keyctl: [250, 0, -2, 0],
  clone3: [435, 0, 0],
  io_uring_setup: [425, 1, 0],
  userfaultfd: [323, 1],
  name_to_handle_at: [303, -100, 0, 0, 0, 0],
  add_key: [248, 0, 0, 0, 0, 0],
  syslog: [103, 10, 0, 0],
};

/** A16: A call that the filter refuses fails with EPERM or ENOSYS before the kernel reads its arguments. */
async function makeSystemCalls(here: Isolation): Promise<Attack> {
  const code = `import ctypes, errno, json
libc = ctypes.CDLL(None, use_errno=True)
for name, arguments in json.loads("""${JSON.stringify(CALLS)}""").items():
    failed = libc.syscall(*arguments) < 0
    if not failed or ctypes.get_errno() not in (errno.EPERM, errno.ENOSYS): print(name)`;
  return withSandbox(async (sandbox) => {
    const { stdout } = await shell(here, sandbox, python(code));
    const through = stdout.trim().split('\n').filter(Boolean);
    const tried = Object.keys(CALLS).length;
    return {
      id: 'A16',
      severity: 'low',
      attack: 'makes system calls that containers refuse',
      tried,
      held: tried - through.length,
      note: through.join(', '),
    };
  });
}

/** A10: Runs as a separate user, which root provides where bubblewrap is not available. */
async function withoutBubblewrap(): Promise<Attack[]> {
  const attacks: Attack[] = [];
  const user = (await isolations()).find(({ kind }) => kind === 'user');
  if (user) {
    const name = `trialgate-attack-${randomUUID()}`;
    const files = ['/tmp', '/var/tmp', '/dev/shm'].map((folder) => `${folder}/${name}`);
    await withSandbox((sandbox) => shell(user, sandbox, files.map((file) => `echo > ${file}`).join('; ')));
    const left = files.filter((file) => existsSync(file));
    left.forEach((file) => rmSync(file));
    const attack = 'leaves files in /tmp, /var/tmp and /dev/shm';
    attacks.push({ id: 'A10', severity: 'high', attack, tried: files.length, held: files.length - left.length });
    attacks.push(await readsDeployment());
  }
  attacks.push(await startsUnsandboxed());
  return attacks;
}

async function readsDeployment(): Promise<Attack> {
  return withTemporaryStack(
    async ({ plan }) => {
      const log = join(plan.folders.logs, 'postgres.log');
      const read = spawnSync('cat', [log], { uid: USER, gid: USER, cwd: '/' });
      return row(
        { id: 'A10', severity: 'high', attack: "reads the deployment's folder as another user of the machine" },
        read.status !== 0,
      );
    },
    signal,
    ['postgres'],
  );
}

/** Starts a worker on a machine whose bubblewrap does not work. */
async function startsUnsandboxed(): Promise<Attack> {
  const folder = await mkdtemp(join(tmpdir(), 'trialgate-attack-'));
  try {
    writeFileSync(join(folder, 'bwrap'), '#!/bin/sh\nexit 1\n', { mode: 0o755 });
    const env = { PATH: `${folder}:${process.env['PATH']}`, HOME: folder, TRIALGATE_HOME: join(folder, 'home') };
    const names = {
      temporal_address: '127.0.0.1:1',
      database_url: 'postgres://127.0.0.1:1/x',
      gateway_url: 'http://127.0.0.1:1',
      secret: 'a secret of sixteen',
    };
    const flags = Object.entries(names).flatMap(([key, value]) => [`--${key.replaceAll('_', '-')}`, value]);
    const worker = spawnSync(INSTALLS.node, [INSTALLS.main, 'worker', '--only', 'activities', ...flags], {
      env,
      cwd: folder,
      timeout: 20_000,
    });
    return row(
      { id: 'A10', severity: 'high', attack: 'runs without bubblewrap though nobody allowed that' },
      worker.status === 3,
    );
  } finally {
    await rm(folder, { recursive: true });
  }
}

/** Runs the same again for a worker that is not root. Its programs are in a folder that this user can reach. */
async function asUser(): Promise<Attack[]> {
  const { bwrap } = await isolation();
  if (process.getuid?.() !== 0 || !bwrap) return [];
  const folder = await mkdtemp(join(tmpdir(), 'trialgate-attack-'));
  try {
    chmodSync(folder, 0o755);
    copyFileSync(bwrap, join(folder, 'bwrap'));
    const env = { PATH: `${folder}:${process.env['PATH']}`, HOME: '/nonexistent', [AS_USER]: '1' };
    const { stdout } = await run(process.execPath, [fileURLToPath(import.meta.url)], {
      uid: USER,
      gid: USER,
      env,
      cwd: '/',
    });
    return JSON.parse(stdout);
  } finally {
    await rm(folder, { recursive: true });
  }
}

async function leavings(who: string): Promise<Attack[]> {
  const here = await isolation();
  const attacks: Attack[] = [];
  for (const left of LEFT) attacks.push(await leaveFiles(here, left, who));
  return attacks;
}

if (process.env[AS_USER]) {
  const { kind } = await isolation();
  console.log(JSON.stringify(await leavings(`${kind}, a worker that is not root`)));
} else {
  const here = await isolation();
  const attacks = [
    ...(await leavings(`${here.kind}, this user`)),
    ...(await asUser()),
    ...(FOLDERS ? [await manyFolders(here, FOLDERS)] : []),
    ...(await exhaustResources(here)),
    await openManyDescriptors(here),
    await inheritDescriptors(here),
    await makeSystemCalls(here),
    ...(await withoutBubblewrap()),
  ];
  process.exitCode = reportAttacks(attacks);
}
