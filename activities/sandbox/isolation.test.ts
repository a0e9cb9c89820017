import { createServer } from 'node:net';
import { once } from 'node:events';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, onTestFinished, test } from 'vitest';
import { detectIsolation, requireBubblewrap } from './isolation.ts';
import { isolations, sandboxWith, shell, temporaryHome } from '../../tests/support/harness/sandbox-fixtures.ts';

const all = await isolations();
const bubblewrap = all.find(({ kind }) => kind === 'bubblewrap');
const user = all.find(({ kind }) => kind === 'user');

test('a worker does not use a bubblewrap that is missing or broken, and keeps the reason', async () => {
  const absent = await detectIsolation({ bwrap: null });
  expect(absent).toMatchObject({
    statement: expect.stringMatching(/bubblewrap is not here/),
    trouble: expect.stringMatching(/no `bwrap`/),
  });
  expect(await detectIsolation({ bwrap: '/bin/false' })).toMatchObject({
    kind: absent.kind,
    trouble: expect.stringContaining('/bin/false'),
  });
});

test('the worker’s log says so when sandboxes have no control groups or no filter of system calls', async () => {
  const [whole, without] = [await detectIsolation(), await detectIsolation({ seccomp: null, cgroup: null })];
  expect(whole.statement.includes('No control groups')).toBe(whole.cgroup === null);
  expect(whole.statement.includes('no filter of system calls')).toBe(
    whole.kind === 'bubblewrap' && whole.seccomp === null,
  );
  expect(without.statement).toContain('No control groups can be used here');
  expect(without.statement.includes('no filter of system calls')).toBe(without.kind === 'bubblewrap');
});

test('without bubblewrap a worker runs agents only with `--unsandboxed`', async () => {
  const absent = await detectIsolation({ bwrap: null });
  expect(() => requireBubblewrap(absent, false)).toThrow(/--unsandboxed/);
  expect(() => requireBubblewrap(absent, true)).not.toThrow();
});

const { trouble } = await detectIsolation();

describe.skipIf(!bubblewrap)(`under bubblewrap (${trouble ?? 'works'})`, () => {
  const isolation = bubblewrap ?? all[0];
  if (!isolation) return;

  test('an agent does not see another trial’s folder, the deployment’s folder, the repository or the host’s processes', async () => {
    await using folder = await temporaryHome();
    const sandbox = await sandboxWith(folder.home, {});
    await sandboxWith(folder.home, { 'theirs.txt': 'secret' }, undefined, 'other');
    const script = `ls ${folder.home} ${process.cwd()}/activities /root/.ssh /home; ls -d /proc/[0-9]*; ls -A /tmp; ls /`;
    const { stdout } = await shell(isolation, sandbox, script);
    expect(stdout).not.toMatch(/theirs|sandboxes|activities/);
    expect(stdout.match(/\/proc\/\d+/g)?.length).toBeLessThan(6);
    expect(stdout).not.toContain('trialgate-sandbox-');
    expect(stdout).toMatch(/^app$/m);
  });

  test('an agent cannot reach the engine’s socket', async () => {
    await using folder = await temporaryHome();
    const socket = join(folder.home, 'engine.sock');
    const engine = createServer().listen(socket);
    await once(engine, 'listening');
    onTestFinished(() => void engine.close());
    const sandbox = await sandboxWith(folder.home, {});
    const connect = `python3 -c "import socket; socket.socket(socket.AF_UNIX).connect('${socket}')"`;
    expect((await shell(isolation, sandbox, connect)).stderr).toContain('No such file');
  });

  test('an agent cannot write to the host’s system folders, gain capabilities or mount', async () => {
    await using folder = await temporaryHome();
    const sandbox = await sandboxWith(folder.home, {});
    const script = 'touch /usr/x /x /etc/x; mount -t tmpfs none /tmp; grep CapEff /proc/self/status; id -u';
    const { stdout, stderr } = await shell(isolation, sandbox, script);
    expect(stdout).toContain('CapEff:\t0000000000000000');
    expect(stdout).not.toMatch(/^0$/m);
    expect(stderr.match(/Read-only|Permission denied/g)?.length).toBeGreaterThanOrEqual(3);
  });
});

describe.skipIf(!user)('in a sandbox with a user of its own, without bubblewrap (skipped unless root)', () => {
  const isolation = user ?? all[0];
  if (!isolation) return;

  test('an agent cannot read another trial’s folder or the deployment’s secrets', async () => {
    await using folder = await temporaryHome();
    const sandbox = await sandboxWith(folder.home, {});
    const other = await sandboxWith(folder.home, { 'theirs.txt': 'secret' }, undefined, 'other');
    await writeFile(join(folder.home, 'secrets.json'), '{}', { mode: 0o600 });
    const { stdout, stderr } = await shell(
      isolation,
      sandbox,
      `cat ${other.work}/theirs.txt ${folder.home}/secrets.json; id -u`,
    );
    expect(stdout.trim()).toBe(String(sandbox.uid));
    expect(stderr.match(/Permission denied/g)?.length).toBe(2);
  });
});
