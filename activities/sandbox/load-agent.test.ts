import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { agentFile } from '../../core/run-config/agent-file.ts';
import { listAgents, loadAgent } from './load-agent.ts';

let folder = '';
beforeEach(async () => void (folder = await mkdtemp(join(tmpdir(), 'trialgate-agents-'))));
afterEach(() => rm(folder, { recursive: true }));

test('the agent file of every agent in `agents/` is valid', async () => {
  expect(await listAgents()).toEqual(expect.arrayContaining(['chat', 'oneshot', 'repair']));
  for (const name of await listAgents()) expect((await loadAgent(name)).name).toBe(name);
});

test.each([
  ['name: a\ndescription: d\ncommand: [x]\ncolor: red', /a\.yaml: .*color/],
  ['name: a\ndescription: d\ncommand: x y', /a\.yaml: command: .*array/],
  ['name: a\ndescription: d\ncommand: [x]\nlimits: {processes: -1}', /a\.yaml: limits\.processes/],
  ['name: b\ndescription: d\ncommand: [x]', /a\.yaml: name: is b/],
  ['command: [x]\nworkdir: ../up', /a\.yaml: workdir: a folder within/],
  ['command: [x]\nmounts: {data: ./missing}', /a\.yaml: mounts\.data: there is no .*missing/],
  ['command: ["{mounts.other}"]', /unknown placeholder \{mounts\.other\}/],
  ['name: a\ndescription: d\ncommand: ["{pyton}"]', /unknown placeholder \{pyton\}; there are python/],
  ['name: a\ncommand: [', /a\.yaml:2/],
  ['', /a\.yaml: \(top level\)/],
])('the agent file %j is refused with an error that names the file and the key or line', async (yaml, message) => {
  await writeFile(join(folder, 'a.yaml'), yaml);
  await expect(loadAgent('a', folder)).rejects.toMatchObject({
    code: 'bad_input',
    message: expect.stringMatching(message),
  });
});

test('an unknown agent is refused with a list of the known ones, and so is a text that cannot be a name', async () => {
  await expect(loadAgent('nobody')).rejects.toThrow(/known agents: .*oneshot, .*repair; one of your own is named by/);
  await expect(loadAgent('Package')).rejects.toThrow(/is not an agent's name/);
});

test('an agent is loaded from any file, whose folder it can read, and its name is the file’s', async () => {
  await mkdir(join(folder, 'mine', 'data'), { recursive: true });
  const file = join(folder, 'mine', 'react.yaml');
  await writeFile(file, 'command: ["{python}", "{agents}/react.py", "{mounts.data}"]\nmounts: {data: data}');
  expect(await loadAgent(file)).toMatchObject({
    name: 'react',
    folder: join(folder, 'mine'),
    mounts: { data: join(folder, 'mine', 'data') },
  });
  await expect(loadAgent(join(folder, 'other.yaml'))).rejects.toThrow(/there is no .*other\.yaml$/);
});

test('an agent’s file beside the deployment’s own files is refused, because the agent could read them', async () => {
  await mkdir(join(folder, '.trialgate'));
  await writeFile(join(folder, 'a.yaml'), 'command: [x]');
  await expect(loadAgent(join(folder, 'a.yaml'))).rejects.toThrow(/put the file into a folder of its own/);
});

test('an agent within a run file has no folder of its own', async () => {
  const agent = agentFile.parse({ command: ['echo', 'hello'] });
  expect(await loadAgent(agent)).toMatchObject({ name: 'inline', folder: null, command: ['echo', 'hello'] });
  await expect(loadAgent({ ...agent, command: ['{agents}/a'] })).rejects.toThrow(/unknown placeholder \{agents\}/);
});
