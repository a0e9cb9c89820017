import { existsSync } from 'node:fs';
import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { checkRun } from '../activities/run/check-run.ts';
import { createSandbox } from '../activities/sandbox/create-sandbox.ts';
import { isolation } from '../activities/sandbox/isolation.ts';
import { verify } from '../activities/sandbox/verify.ts';
import { listFolder } from '../activities/tasks/list-tasks.ts';
import { loadTask } from '../activities/tasks/load-task.ts';
import { checkRows } from '../activities/tasks/store-rows.ts';
import { readRunFile } from '../cli/run/read-run-file.ts';
import { shell, temporaryHome } from '../tests/support/harness/sandbox-fixtures.ts';
import { openBackend } from '../activities/sandbox/backends.ts';
import { bubblewrapBackend } from '../activities/sandbox/bubblewrap-backend.ts';

const backend = await openBackend();

const examples = (await readdir('examples', { withFileTypes: true }))
  .filter((entry) => entry.isDirectory())
  .map(({ name }) => join('examples', name));
const here = await isolation();

test.each(examples)(
  '%s has a run file that is valid, and its agents, tasks, rows and reward functions are there',
  async (example) => {
    await using place = await temporaryHome();
    const config = await readRunFile(join(example, 'run.yaml'));
    await checkRun(config, null);
    await checkRows(config, place.home);
  },
);

/** Returns the commands in the blocks of code of a README, each in one line and without the shell's comments. */
async function commandsOf(readme: string): Promise<string[]> {
  const text = await readFile(readme, 'utf8');
  return [...text.matchAll(/^```(?:sh)?\n([^]*?)^```$/gm)]
    .flatMap(([, block = '']) => block.replaceAll(/\\\n\s*/g, '').split('\n'))
    .map((line) => line.replace(/\s+#.*$/, '').trim())
    .filter(Boolean);
}

// `cli/checks/documented-commands.test.ts` checks their verbs and options.
test.each(examples)('%s has a README whose commands train it, and name only files that are there', async (example) => {
  const commands = await commandsOf(join(example, 'README.md'));
  const ours = commands.filter((command) => command.includes('npx trialgate'));
  expect(ours.join('\n')).toContain(`${example}/run.yaml`);
  for (const path of commands.join('\n').match(/\bexamples\/[\w./-]+/g) ?? [])
    expect(existsSync(path), path).toBe(true);
});

test('examples/README.md names each example', async () => {
  const index = await readFile('examples/README.md', 'utf8');
  for (const example of examples) expect(index).toContain(`(${example.replace('examples/', '')}/README.md)`);
});

const folders = await listFolder('examples/claude-code/tasks');

/** Returns the reward for what a script leaves in the task's work folder. */
async function rewardAfter(folder: string, script: string): Promise<number | undefined> {
  await using place = await temporaryHome();
  const task = await loadTask(folder);
  const sandbox = await createSandbox({ backend, home: place.home, trialId: 't', attempt: 1, task });
  const ran = await shell(here, sandbox, script);
  expect(ran.exitCode, ran.stderr).toBe(0);
  const { rewards } = await verify({
    task,
    sandbox,
    backend: bubblewrapBackend(here),
    signal: new AbortController().signal,
  });
  return rewards.reward;
}

test.each(folders)('%s gives its solution a reward of 1, and the untouched task 0', async (folder) => {
  const solution = await readFile(join(folder, 'solution/solve.sh'), 'utf8');
  expect(await rewardAfter(folder, solution)).toBe(1);
  expect(await rewardAfter(folder, 'true')).toBe(0);
});
