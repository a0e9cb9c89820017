import { writeFile } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { expect, test } from 'vitest';
import { TrialgateError } from '../../core/errors.ts';
import { temporaryDeployment } from '../../tests/support/harness/temporary-deployment.ts';
import { startSent } from './start-sent.ts';
import { trainFile } from './train-file.ts';

const RUN = `model: m\niterations: 1\ntasks: [${resolve('tasks/train/add')}]\n`;

test.each([
  ['is not YAML', 'model: [m'],
  ['has no settings', '- a\n- b\n'],
  ['is empty', ''],
  ['has an unknown setting', `${RUN}group_sise: 4\n`],
  ['has a wrong value', `${RUN}group_size: "\\u0007"\n`],
  ['has a character that is not stored', `${RUN}reward: {function: exact_match, options: {a: "\\0"}}\n`],
  ['is nested without end', `${RUN}seed: ${'['.repeat(100_000)}\n`],
  ['has an alias that names too much', `a: &a [x, x]\nb: &b [*a, *a]\nc: [${'*b, '.repeat(200)}*b]\n`],
  ['has an alias within what it names', `${RUN}reward: &a {function: exact_match, options: {a: *a}}\n`],
  ['has an alias of the whole file', '&a {model: *a, tasks: *a}\n'],
  ['names a task that is not there', `${RUN}evaluation: {tasks: [${resolve('tasks/none')}]}\n`],
  ['can be checked, and Temporal is away', RUN],
])('a sent run file that %s is refused as `train` refuses it', async (_what, text) => {
  const {
    config: deployment,
    home,
    remove,
  } = await temporaryDeployment({
    TRIALGATE_TEMPORAL_ADDRESS: '127.0.0.1:9',
    TRIALGATE_MODEL: 'm',
    TRIALGATE_UNSANDBOXED: 'false',
  });
  const { signal } = new AbortController();
  const said: string[] = [];
  try {
    const file = join(home, 'run.yaml');
    await writeFile(file, text);
    const refusal = await trainFile(file, { deployment }, signal).then(
      () => null,
      (error: unknown) => error,
    );
    expect(refusal).toBeInstanceOf(TrialgateError);
    const sent = startSent(deployment, { file: text, file_name: file }, (line) => said.push(line), signal);
    await expect(sent).rejects.toMatchObject({ ...(refusal as object), message: (refusal as Error).message });
    expect(said).toEqual([]);
  } finally {
    await remove();
  }
});

test('a sent run file with many agents is refused before one is tried, because nobody can end the check', async () => {
  const { config: deployment, remove } = await temporaryDeployment({ TRIALGATE_MODEL: 'm' });
  try {
    const file = `${RUN}agents: [${'oneshot, '.repeat(50)}]\n`;
    await expect(startSent(deployment, { file }, () => {}, new AbortController().signal)).rejects.toMatchObject({
      code: 'bad_input',
      message: expect.stringMatching(/at most 50 agents and sources of tasks/),
    });
  } finally {
    await remove();
  }
});
