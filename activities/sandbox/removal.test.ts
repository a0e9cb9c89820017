import { spawnSync } from 'node:child_process';
import { chmodSync, existsSync, mkdirSync, writeFileSync } from 'node:fs';
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { afterEach, describe, expect, onTestFinished, test, vi } from 'vitest';
import { until } from '../../tests/support/harness/until.ts';
import { copyFiles } from './copy-files.ts';
import { createSandbox } from './create-sandbox.ts';
import type { Sandbox } from './empty-sandbox.ts';
import { destroySandbox } from './destroy-sandbox.ts';
import { sweepSandboxes } from './sweep-sandboxes.ts';
import {
  testedIsolations,
  sandboxWith,
  shell,
  taskWith,
  temporaryHome,
} from '../../tests/support/harness/sandbox-fixtures.ts';
import { SmallDisk } from '../../tests/support/harness/small-disk.ts';
import { listTrash } from './trash.ts';
import { verify } from './verify.ts';
import { openBackend } from './backends.ts';
import { bubblewrapBackend } from './bubblewrap-backend.ts';

const backend = await openBackend();

const id = { trialId: 't', attempt: 1 };

/** Files that an agent leaves so that it cannot be judged or removed. Each entry is Python code that runs in the agent's folder. */
const LEFT_BEHIND = {
  'folders nested deeper than a path may be long': `
for _ in range(40):
    os.mkdir("d" * 250)
    os.chdir("d" * 250)`,
  'a folder without permissions': 'os.makedirs("closed/inner"); os.chmod("closed/inner", 0); os.chmod("closed", 0)',
  'names that are not UTF-8': 'os.makedirs(b"\\xff\\xfe/\\x80"); open(b"\\xff\\xfe/\\x80/\\xc3", "w").close()',
  'a hundred folders': 'for i in range(100): os.mkdir(str(i))',
};

const escaped = (code: string): string => `python3 -c '${`import os\n${code}`.trim()}'`;

async function fresh(): Promise<{ home: string; sandbox: Sandbox }> {
  const folder = await temporaryHome();
  onTestFinished(() => folder[Symbol.asyncDispose]());
  return { home: folder.home, sandbox: await sandboxWith(folder.home, { 'solution.py': '' }) };
}

afterEach(() => void vi.restoreAllMocks());

describe.each(await testedIsolations())('$kind', (here) => {
  test.each(Object.entries(LEFT_BEHIND))(
    'the work of an agent that leaves %s is verified, and removing its sandbox leaves no file',
    async (_, code) => {
      const { home, sandbox } = await fresh();
      await shell(here, sandbox, escaped(code));
      // The verifier runs the agent's code, which may leave the same files.
      const task = await taskWith(
        home,
        `cd $LOGS_DIR && ${escaped(code)}; test -f $WORK_DIR/solution.py && echo 1 > $LOGS_DIR/verifier/reward.txt`,
      );
      const { rewards } = await verify({
        task,
        sandbox,
        backend: bubblewrapBackend(here),
        signal: new AbortController().signal,
      });
      expect(rewards).toEqual({ reward: 1 });
      await destroySandbox({ backend, ...id, home });
      expect(await readdir(join(home, 'sandboxes'))).toEqual(expect.not.arrayContaining(['t.1', 't.1.verify']));
      expect(await listTrash(home)).toEqual([]);
    },
  );
});

test('the limit on the files that a verifier gets counts folders and the links that it does not get', async () => {
  const { home, sandbox } = await fresh();
  for (let index = 0; index < 30; index += 1) mkdirSync(join(sandbox.work, String(index)));
  const copy = (entries: number) => copyFiles(sandbox.work, join(home, `copy-${entries}`), { bytes: 2 ** 20, entries });
  await expect(copy(31)).rejects.toThrow(RangeError);
  expect(await copy(32)).toMatchObject({ entries: 32, skipped: [] });
});

const refusal = await SmallDisk.refusal();
test.skipIf(refusal !== null)(
  `sandbox files that cannot be removed are moved to the trash and logged, and stop no worker (needs mount: ${refusal ?? 'works'})`,
  async () => {
    const { home, sandbox } = await fresh();
    const said = vi.spyOn(console, 'error').mockImplementation(() => {});
    mkdirSync(join(sandbox.work, 'mounted'));
    expect(spawnSync('mount', ['-t', 'tmpfs', 'tmpfs', join(sandbox.work, 'mounted')]).status).toBe(0);
    onTestFinished(() => {
      for (const folder of [sandbox.work, join(home, 'sandboxes/.trash')])
        spawnSync('find', [folder, '-name', 'mounted', '-exec', 'umount', '-l', '{}', ';']);
    });
    await destroySandbox({ backend, ...id, home });
    expect(existsSync(sandbox.root)).toBe(false);
    expect(await listTrash(home)).toHaveLength(1);
    expect(said.mock.calls.join()).toContain('cannot be removed whole');
    expect(await sweepSandboxes(home)).toEqual([]);
    // The sweep tries again in the background.
    await until(() => said.mock.calls.length === 2);
    const again = await createSandbox({ backend, ...id, home, task: await taskWith(home, 'true') });
    expect(await readdir(again.work)).toEqual(['instruction.md']);
  },
);

test.skipIf(refusal !== null)(
  `a sandbox can be removed while the disk is full (needs mount: ${refusal ?? 'works'})`,
  async ({ signal }) => {
    const folder = await temporaryHome();
    const disk = await SmallDisk.mount(join(folder.home, 'disk'), 8);
    onTestFinished(async () => {
      await disk.unmount();
      await folder[Symbol.asyncDispose]();
    });
    const home = disk.folder;
    const sandbox = await sandboxWith(home, { 'solution.py': '' });
    await disk.whileFull(() => destroySandbox({ backend, ...id, home }), signal);
    expect(existsSync(sandbox.root)).toBe(false);
    expect(await listTrash(home)).toEqual([]);
  },
);

test('a new sandbox begins without the files of a folder of its name that no known worker owns', async () => {
  const folder = await temporaryHome();
  onTestFinished(() => folder[Symbol.asyncDispose]());
  const stale = join(folder.home, 'sandboxes/t.1/work');
  mkdirSync(stale, { recursive: true });
  writeFileSync(join(stale, 'solution.py'), '');
  chmodSync(stale, 0);
  const { work } = await createSandbox({
    backend,
    ...id,
    home: folder.home,
    task: await taskWith(folder.home, 'true'),
  });
  expect(await readdir(work)).toEqual(['instruction.md']);
});
