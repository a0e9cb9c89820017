import { spawn } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, onTestFinished, test } from 'vitest';
import { detectIsolation } from './isolation.ts';
import { MARKER } from './kill-tree.ts';
import { processTable, processesWith } from './process-table.ts';
import { sandboxWith, specOf, temporaryHome } from '../../tests/support/harness/sandbox-fixtures.ts';

const isolation = await detectIsolation();

/** Starts a worker that launches `script` and waits for it. The test ends the worker. */
async function workerThatLaunches(script: string) {
  const folder = await temporaryHome();
  onTestFinished(() => folder[Symbol.asyncDispose]());
  const sandbox = await sandboxWith(folder.home, {}, undefined, `launched-${randomUUID()}`);
  const { signal: _, ...spec } = specOf(isolation, sandbox, script);
  const code = `
    import { launch } from ${JSON.stringify(new URL('./launcher.ts', import.meta.url).href)};
    launch({ ...${JSON.stringify(spec)}, signal: new AbortController().signal }).then(
      (result) => console.log(JSON.stringify(result)),
      (error) => console.log(JSON.stringify({ error: error.name + ': ' + error.message })),
    );`;
  const worker = spawn(process.execPath, ['--input-type=module', '-e', code], { stdio: ['ignore', 'pipe', 'inherit'] });
  onTestFinished(() => void worker.kill('SIGKILL'));
  let ended = '';
  worker.stdout.on('data', (data) => (ended += data));
  const started = async (): Promise<number[]> => {
    for (;;) {
      if (ended !== '') throw new Error(`the sandbox ended before it was seen: ${ended}`);
      const found = processesWith(`${MARKER}=${spec.marker}`);
      if (found.length > 0) return found;
      await sleep(20);
    }
  };
  return { worker, started, living: () => processesWith(`${MARKER}=${spec.marker}`).length };
}

/** Waits until all processes are dead: the kernel takes a moment to end a sandbox. */
async function dead(living: () => number): Promise<void> {
  for (let round = 0; living() > 0 && round < 6000; round++) await sleep(10);
  expect(living()).toBe(0);
}

test('a sandbox’s processes end when the worker that started them is killed', async () => {
  const { worker, started, living } = await workerThatLaunches('sleep 60');
  await started();
  worker.kill('SIGKILL');
  await once(worker, 'exit');
  await dead(living);
});

// Repeated, because the kill must also hit bubblewrap while it makes its namespaces.
test(
  'when the process that starts a worker’s sandboxes is killed, the agent that it started fails with a SandboxError at once, and its processes die',
  { repeats: 3 },
  async () => {
    const { worker, started, living } = await workerThatLaunches('sleep 60');
    await started();
    const said = once(worker.stdout, 'data');
    const launcher = processTable().find((row) => row.parent === worker.pid);
    if (!launcher) throw new Error('the worker has no launcher');
    process.kill(launcher.pid, 'SIGKILL');
    expect(String(await said)).toContain('SandboxError: the process that starts the sandboxes ended: SIGKILL');
    await once(worker, 'exit');
    if (isolation.kind === 'bubblewrap') await dead(living);
  },
);

test('a worker can exit while the process that starts its sandboxes is idle', async () => {
  const { worker } = await workerThatLaunches('echo done');
  const [said] = await once(worker.stdout, 'data');
  expect(JSON.parse(String(said))).toMatchObject({ reason: 'exited', exitCode: 0, stdout: 'done\n' });
  await once(worker, 'exit');
});
