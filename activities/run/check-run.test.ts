import { chmodSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { taskWith, temporaryHome, writeFiles } from '../../tests/support/harness/sandbox-fixtures.ts';
import { runConfig } from '../../core/run-config/run-config.ts';
import { checkRun } from './check-run.ts';

test.each([
  ['', {}, null],
  ['', { network: 'host' }, null],
  ['network_mode = "no-network"', {}, null],
  ['network_mode = "no-network"', { network: 'host' }, /gives its agent no network, and the agent oneshot reaches all/],
  ['network_mode = "public"', { network: 'host' }, null],
  ['network_mode = "no-network"', { network: ['pypi.org'] }, null],
  ['network_mode = "public"', { network: ['pypi.org'] }, /reaches only the hosts of a list: set `network: host`/],
  ['allowed_hosts = ["pypi.org"]', { network: ['pypi.org'] }, null],
  ['allowed_hosts = ["a.b.org", "c.org"]', { network: ['*.b.org', 'c.org'] }, null],
  [
    'allowed_hosts = ["pypi.org", "c.org"]',
    { network: ['c.org'] },
    /lets its agent reach pypi\.org, and the run does not: set `network: \[pypi\.org, c\.org\]` in the run file/,
  ],
  ['allowed_hosts = ["pypi.org"]', {}, /lets its agent reach pypi\.org, and the run does not/],
  [
    'allowed_hosts = ["pypi.org"]',
    { network: 'host' },
    /gives its agent pypi\.org alone, and the agent oneshot reaches all/,
  ],
  ['\n[verifier]\nallowed_hosts = ["pypi.org"]', {}, /lets its tests reach pypi\.org, and the run does not/],
  ['\n[verifier]\nallowed_hosts = ["pypi.org"]', { network: ['pypi.org'] }, null],
  ['network_mode = "public"', {}, /task\.toml: the task gives its agent an open network, .*set `network: host`/],
])('the check of a run compares [agent] %j with the run’s network %j', async (toml, settings, message) => {
  await using place = await temporaryHome();
  const { folder } = await taskWith(place.home, 'true', { 'task.toml': `[agent]\n${toml}` });
  const config = runConfig.parse({ model: 'm', iterations: 1, tasks: [folder], ...settings });
  if (message === null) await checkRun(config, null);
  else
    await expect(checkRun(config, null)).rejects.toMatchObject({
      code: 'bad_input',
      message: expect.stringMatching(message),
    });
});

test('the check of a run refuses a task whose tests need an image where the verifier’s sandbox has none', async () => {
  await using place = await temporaryHome();
  const { folder } = await taskWith(place.home, 'true');
  writeFileSync(join(folder, 'task.toml'), '[environment]\ndocker_image = "example:1"');
  const settings = { model: 'm', iterations: 1, tasks: [folder], sandbox: 'container' };
  await checkRun(runConfig.parse(settings), null);
  await expect(checkRun(runConfig.parse({ ...settings, verifier_sandbox: 'bubblewrap' }), null)).rejects.toMatchObject({
    code: 'bad_input',
    message:
      'the image example:1: bubblewrap runs no images: set `verifier_sandbox: container`, or remove `verifier_sandbox`',
  });
});

test.each(['environment/sub', 'tests'])('the check of a run refuses a task with a link in %s', async (part) => {
  await using place = await temporaryHome();
  const { folder } = await taskWith(place.home, 'true', { [`${part}/file`]: '' });
  symlinkSync('file', join(folder, part, 'link'));
  const config = runConfig.parse({ model: 'm', iterations: 1, tasks: [folder] });
  await expect(checkRun(config, null)).rejects.toThrow(`/${part}/link: a sandbox gets no links and special files`);
});

test('the check of a run refuses a task with a file in place of a folder', async () => {
  await using place = await temporaryHome();
  const { folder } = await taskWith(place.home, 'true', { environment: 'a file' });
  const config = runConfig.parse({ model: 'm', iterations: 1, tasks: [folder] });
  await expect(checkRun(config, null)).rejects.toMatchObject({
    code: 'bad_input',
    message: `${join(folder, 'environment')} cannot be read (ENOTDIR): sandboxes get copies of its files, so make it a folder that this user can read`,
  });
});

// Root can read every folder.
test.skipIf(process.getuid?.() === 0)(
  'the check of a run refuses a task with a folder that cannot be read',
  async () => {
    await using place = await temporaryHome();
    const { folder } = await taskWith(place.home, 'true', { 'tests/closed/file': '' });
    const closed = join(folder, 'tests/closed');
    const config = runConfig.parse({ model: 'm', iterations: 1, tasks: [folder] });
    chmodSync(closed, 0);
    try {
      await expect(checkRun(config, null)).rejects.toThrow(`${closed} cannot be read (EACCES)`);
    } finally {
      chmodSync(closed, 0o700);
    }
  },
);

test.each([
  ['a Dockerfile', {}, { 'environment/Dockerfile': 'FROM debian\nRUN true\n' }, /Dockerfile: .* build no images/],
  ['an open network', { network: 'host' }, {}, /have no open network/],
  [
    'packages',
    { agents: [{ command: ['{python}'], python: { requirements: ['six'] } }] },
    {},
    /install the packages of `python`/,
  ],
  [
    'a file',
    { agents: [{ command: ['sh', '{mounts.a}'], mounts: { a: 'FOLDER/task.toml' } }] },
    {},
    /`mounts\.a` is the file/,
  ],
])('the check of a run refuses %s where its sandboxes are pods', async (_, settings, files, message) => {
  await using place = await temporaryHome();
  const { folder } = await taskWith(place.home, 'true');
  await writeFiles(folder, { 'task.toml': '', ...files });
  const given: object = JSON.parse(JSON.stringify(settings).replace('FOLDER', folder));
  const config = runConfig.parse({ model: 'm', iterations: 1, tasks: [folder], sandbox: 'kubernetes', ...given });
  await expect(checkRun(config, null)).rejects.toMatchObject({
    code: 'bad_input',
    message: expect.stringMatching(message),
  });
});

test('the check of a run refuses a Dockerfile where its tests are in pods', async () => {
  await using place = await temporaryHome();
  const { folder } = await taskWith(place.home, 'true');
  await writeFiles(folder, { 'environment/Dockerfile': 'FROM debian\nRUN true\n' });
  const settings = { sandbox: 'container', verifier_sandbox: 'kubernetes' };
  const config = runConfig.parse({ model: 'm', iterations: 1, tasks: [folder], ...settings });
  await expect(checkRun(config, null)).rejects.toThrow(/Dockerfile: .* build no images/);
});

test('the check of a run refuses two agents’ files with the same name, and takes the same file twice', async () => {
  await using place = await temporaryHome();
  const { folder } = await taskWith(place.home, 'true');
  await writeFiles(place.home, {
    'one/agent.yaml': 'command: [x]\n',
    'two/agent.yaml': 'command: [x]\n',
    'three/agent.yaml': 'name: crew\ncommand: [x]\n',
  });
  const check = (...agents: string[]) =>
    checkRun(
      runConfig.parse({
        model: 'm',
        iterations: 1,
        tasks: [folder],
        agents: agents.map((name) => join(place.home, name, 'agent.yaml')),
      }),
      null,
    );
  await expect(check('one', 'two')).rejects.toThrow(
    /one\/agent\.yaml and .*two\/agent\.yaml have the same name, agent/,
  );
  await check('one', 'three', 'one');
});

const ROWS = { rows: 'FOLDER/rows.jsonl' };
const GRADED = { tasks: [ROWS], reward: 'exact_match' };
test.each([
  ['its rows', 'FOLDER/agent.yaml', GRADED, 'rows.jsonl'],
  ['its rows behind a link', 'FOLDER/link/agent.yaml', GRADED, 'rows.jsonl'],
  [
    'its reward function',
    'FOLDER/agent.yaml',
    { tasks: [{ rows: 'org/data' }], reward: 'FOLDER/grade.py:score' },
    'grade.py',
  ],
  ['held-out rows', 'FOLDER/agent.yaml', { evaluation: { tasks: [ROWS] }, reward: 'exact_match' }, 'rows.jsonl'],
  ['the tests of a task', 'FOLDER/agent.yaml', {}, 'task/tests'],
  ['the tests by a mount', { command: ['x'], mounts: { more: 'FOLDER/task/tests' } }, {}, 'task/tests'],
  ['the solution by a mount', { command: ['x'], mounts: { more: 'FOLDER/task/solution' } }, {}, 'task/solution'],
  ['a function beside the task', { function: 'FOLDER/agent.py:run' }, {}, 'task/tests'],
  ['no answer: it has a folder of its own', 'FOLDER/own/agent.yaml', GRADED, null],
  [
    'no answer: it has the task’s environment',
    { command: ['x'], mounts: { more: 'FOLDER/task/environment' } },
    {},
    null,
  ],
])('the check of a run finds that an agent can read %s', async (_, agent, settings, found) => {
  await using place = await temporaryHome();
  const { folder } = await taskWith(place.home, 'true', { 'solution/solve.sh': '', 'environment/data': '' });
  await writeFiles(place.home, {
    'agent.yaml': 'command: [x]',
    'own/agent.yaml': 'command: [x]',
    'agent.py': '',
    'grade.py': '',
    'rows.jsonl': '{"prompt": "a", "answer": "b"}\n',
  });
  symlinkSync('.', join(place.home, 'link'));
  const given: object = JSON.parse(
    JSON.stringify({ tasks: [folder], ...settings, agents: [agent] }).replaceAll('FOLDER', place.home),
  );
  const checked = checkRun(runConfig.parse({ model: 'm', iterations: 1, ...given }), null);
  if (found === null) await checked;
  else
    await expect(checked).rejects.toMatchObject({
      code: 'bad_input',
      message: expect.stringMatching(
        new RegExp(`^agents: .* can read all of .*, and ${join(place.home, found)} is in`),
      ),
    });
});

test('a file of rows in place of a task folder is refused, with the way to name and to try rows', async () => {
  await using place = await temporaryHome();
  await writeFiles(place.home, { 'rows.jsonl': '{}\n' });
  const rows = join(place.home, 'rows.jsonl');
  await expect(checkRun(runConfig.parse({ model: 'm', iterations: 1, tasks: [rows] }), null)).rejects.toMatchObject({
    code: 'bad_input',
    message: expect.stringMatching(
      /is a file of rows, not a folder: .*`tasks: \[{rows: .*rows\.jsonl, prompt: …}\]` .*try .*rows\.jsonl#0 --run/,
    ),
  });
});
