import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { chown, copyFile, mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, onTestFinished, test } from 'vitest';
import type { Sandbox } from './empty-sandbox.ts';
import { destroySandbox } from './destroy-sandbox.ts';
import { MARKER } from './kill-tree.ts';
import { processesWith } from './process-table.ts';
import {
  isolations,
  sandboxWith,
  shell,
  temporaryHome,
  testedIsolations,
} from '../../tests/support/harness/sandbox-fixtures.ts';
import { openBackend } from './backends.ts';

const backend = await openBackend();

const living = ({ marker }: Sandbox): number => processesWith(`${MARKER}=${marker}`).length;

async function fresh(): Promise<Sandbox> {
  const folder = await temporaryHome();
  onTestFinished(() => folder[Symbol.asyncDispose]());
  return sandboxWith(folder.home, {});
}

describe.each(await testedIsolations())('$kind', (isolation) => {
  test('an aborted command in a sandbox ends with every process of the sandbox, also one that called setsid', async () => {
    const sandbox = await fresh();
    const controller = new AbortController();
    const running = shell(
      isolation,
      sandbox,
      'setsid bash -c "(sleep 600; true) & sleep 600" & (sleep 600; true) & wait',
      {
        signal: controller.signal,
      },
    );
    while (living(sandbox) < 4) await sleep(20);
    controller.abort();
    const result = await running;
    expect(result.reason).toBe('cancelled');
    expect(living(sandbox)).toBe(0);
  });

  test('removing a sandbox leaves the processes of another deployment’s sandbox of the same name running', async () => {
    const [ours, theirs] = [await fresh(), await fresh()];
    const running = shell(isolation, theirs, 'read -t 2 < <(sleep 600); echo ok');
    while (living(theirs) < 2) await sleep(20);
    await shell(isolation, ours, 'true');
    await destroySandbox({ backend, home: ours.home, trialId: 't', attempt: 1 });
    expect(await running).toMatchObject({ reason: 'exited', exitCode: 0, stdout: 'ok\n' });
  });

  test('when an agent’s command has ended well, the processes that it left in the background are ended too', async () => {
    const sandbox = await fresh();
    const result = await shell(isolation, sandbox, 'setsid nohup sleep 600 >/dev/null 2>&1 & sleep 0.1; echo ok');
    expect(result).toMatchObject({ reason: 'exited', exitCode: 0, stdout: 'ok\n' });
    expect(living(sandbox)).toBe(0);
  });

  test('an agent’s command ends without waiting for a background process that holds its output open', async () => {
    const result = await shell(isolation, await fresh(), 'sleep 600 & echo ok');
    expect(result).toMatchObject({ reason: 'exited', exitCode: 0, stdout: 'ok\n' });
  });

  test('a sandbox’s command that ignores SIGTERM is ended when its time is over', async () => {
    const sandbox = await fresh();
    const result = await shell(isolation, sandbox, 'trap "" TERM; while :; do sleep 1; done', { seconds: 0.3 });
    expect(result.reason).toBe('timed_out');
    expect(living(sandbox)).toBe(0);
  });

  test('a sandbox’s command that prints more than its limit is ended, and its output is cut at the limit', async () => {
    const result = await shell(isolation, await fresh(), 'yes', { outputBytes: 5000 });
    expect(result.reason).toBe('output_limit');
    expect(result.stdout.length).toBe(5000);
  });

  test('an agent’s command that prints more than its limit goes on, and the beginning and the end of its output are kept', async () => {
    const script = 'echo first; yes | head -c 200000; echo last; echo why >&2; exit 3';
    const result = await shell(isolation, await fresh(), script, { outputBytes: 5000, cutsOutput: true });
    expect(result).toMatchObject({ reason: 'exited', exitCode: 3 });
    expect(result.stdout).toMatch(
      /^first\n(?:y\n)+[^]*\[… \d+ bytes of output are left out here …\]\n(?:y?\n)+(?:y\n)*last\n$/,
    );
    expect(result.stdout.length).toBeLessThan(25_000);
    expect(result.stderr).toBe('why\n');
  });

  test('a sandbox’s process that takes more memory than the sandbox may have is ended', async () => {
    const result = await shell(isolation, await fresh(), 'exec python3 -c "x = bytearray(300 * 2**20)"', {
      memoryMb: 100,
    });
    expect(result.exitCode === 1 ? result.stderr : result.reason).toMatch(/MemoryError|out_of_memory/);
  });

  test('a sandbox’s processes are ended when they take too much memory together; files in memory count', async () => {
    const eater = `python3 -c "x = bytearray(b'x') * (60 * 2**20); import time; time.sleep(600)"`;
    const files = `python3 -c '
import os, time
held = []
for _ in range(40):
    held.append(os.memfd_create("x"))
    os.write(held[-1], bytes(8 * 2**20))
    time.sleep(0.05)
time.sleep(600)
'`;
    // Without control groups, processes are counted twice a second, on a busy machine less often. So these keep their memory until they are ended.
    for (const form of [isolation, { ...isolation, cgroup: null }]) {
      for (const script of [`for i in 1 2 3 4; do ${eater} & done; wait`, files]) {
        const sandbox = await fresh();
        const { reason, oomKills } = await shell(form, sandbox, script, { memoryMb: 100 });
        expect(oomKills ? 'out_of_memory' : reason).toBe('out_of_memory');
        expect(living(sandbox)).toBe(0);
      }
    }
  });

  // Root's own processes are not limited, and a sandbox runs as root only without a user of its own.
  test.skipIf(isolation.kind === 'none' && process.getuid?.() === 0)(
    'a fork bomb in a sandbox is ended, and none of its processes is left',
    async () => {
      const sandbox = await fresh();
      const result = await shell(isolation, sandbox, 'f() { sleep 20 & f | f & }; f; sleep 20', {
        seconds: 2,
        processes: 20,
      });
      expect(['timed_out', 'process_limit', 'output_limit']).toContain(result.reason);
      expect(living(sandbox)).toBe(0);
    },
  );

  test('no file of a sandbox can grow past the sandbox’s storage limit', async () => {
    const result = await shell(isolation, await fresh(), 'head -c 20000000 /dev/zero > big; stat -c %s big', {
      storageMb: 1,
    });
    expect(Number(result.stdout)).toBeLessThanOrEqual(2 ** 20);
  });

  test('an agent cannot read the worker’s environment, except without any isolation', async () => {
    process.env.TRIALGATE_SECRET = 'the-secret-of-this-test';
    onTestFinished(() => void delete process.env.TRIALGATE_SECRET);
    const all = 'env; cat /proc/*/environ 2>/dev/null | tr "\\0" "\\n"';
    const result = await shell(isolation, await fresh(), all, { env: { MINE: '1' }, outputBytes: 10_000_000 });
    expect(result.stdout).toContain('MINE=1');
    // A plain process of the same user can read the worker's environment; the statement in the log says so.
    if (isolation.kind !== 'none') expect(result.stdout).not.toContain('the-secret-of-this-test');
  });

  test('an unknown command in a sandbox ends with exit code 127, as in a shell', async () => {
    const result = await shell(isolation, await fresh(), 'exec no-such-command');
    expect(result).toMatchObject({ reason: 'exited', exitCode: 127 });
  });

  test('a sandbox’s command that is aborted before its start does not run', async () => {
    const result = await shell(isolation, await fresh(), 'echo ran', { signal: AbortSignal.abort() });
    expect(result).toMatchObject({ reason: 'cancelled', stdout: '' });
  });

  test('a sandbox is ended when its files together exceed its storage limit, also files that are deleted and still open', async () => {
    const writing = 'for i in $(seq 20); do head -c 4M /dev/zero > file-$i; sleep 0.3; done; sleep 60';
    const deleting = `python3 -c '
import os, time
held = []
for _ in range(8):
    held.append(open("x", "wb"))
    os.unlink("x")
    held[-1].write(bytes(4 * 2**20))
    held[-1].flush()
time.sleep(60)
'`;
    const ends = await Promise.all(
      [writing, deleting].map(async (script) =>
        shell(isolation, await fresh(), script, { storageMb: 10, seconds: 60 }),
      ),
    );
    expect(ends.map(({ reason }) => reason)).toEqual(['storage_limit', 'storage_limit']);
    // The report is the counted size. Files that were deleted and are still open count too.
    for (const { diskBytes } of ends) expect(diskBytes).toBeGreaterThan(10 * 2 ** 20);
  });

  test('a sandbox whose processes open very many descriptors is ended, with control groups and without', async () => {
    const open = `python3 -c '
import os, time
try:
    for number in range(3, 100000): os.dup2(1, number)
except OSError: print(number, flush=True)
time.sleep(60)
'`;
    for (const form of [isolation, { ...isolation, cgroup: null }]) {
      const { reason, stdout } = await shell(form, await fresh(), `for i in 1 2 3; do ${open} & done; wait`, {
        seconds: 60,
      });
      expect(reason).toBe('descriptor_limit');
      expect(stdout).toBe('4096\n'.repeat(3));
    }
  });
});

const worker = (await isolations()).find(({ bwrap }) => bwrap);
test.skipIf(process.getuid?.() !== 0 || !worker)(
  'files in a folder without permissions count against a sandbox’s storage limit, also for a worker that is not root (skipped unless root)',
  async () => {
    await using folder = await temporaryHome();
    const bwrap = join(folder.home, 'bwrap');
    await copyFile(worker?.bwrap ?? '', bwrap);
    const root = join(folder.home, 'root');
    await mkdir(root);
    await chown(root, 61_999, 61_999);
    const code = `
    import { chmodSync, mkdirSync, writeFileSync } from 'node:fs';
    import { watchStorage } from ${JSON.stringify(new URL('./storage-watch.ts', import.meta.url).href)};
    mkdirSync('closed');
    writeFileSync('closed/large', Buffer.alloc(20 * 2 ** 20));
    chmodSync('closed', 0);
    const isolation = { kind: 'bubblewrap', bwrap: ${JSON.stringify(bwrap)} };
    const onExcess = (excess) => process.exit(excess === 'storage_limit' ? 0 : 1);
    watchStorage({ root: process.cwd(), storageMb: 10, pid: process.pid, uid: null, isolation, onExcess });
    setTimeout(() => process.exit(2), 30_000);`;
    const child = spawn(process.execPath, ['--input-type=module', '-e', code], {
      uid: 61_999,
      gid: 61_999,
      cwd: root,
      stdio: 'inherit',
    });
    expect(await once(child, 'exit')).toEqual([0, null]);
  },
);
