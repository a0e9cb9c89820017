import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { agentsFolder } from './agents-folder.ts';
import { listAgents, loadAgent } from './load-agent.ts';

let folder = '';
beforeEach(async () => void (folder = await mkdtemp(join(tmpdir(), 'trialgate-agents-'))));
afterEach(() => rm(folder, { recursive: true }));

test('the agent file of every agent in `agents/` is valid', async () => {
  expect(await listAgents(agentsFolder)).toEqual(['oneshot', 'repair']);
  for (const name of await listAgents(agentsFolder)) expect((await loadAgent(agentsFolder, name)).name).toBe(name);
});

test.each([
  ['name: a\ndescription: d\ncommand: [x]\ncolour: red', /a\.yaml: .*colour/],
  ['name: a\ndescription: d\ncommand: x y', /a\.yaml: command: .*array/],
  ['name: a\ndescription: d\ncommand: [x]\nlimits: {processes: -1}', /a\.yaml: limits\.processes/],
  ['name: b\ndescription: d\ncommand: [x]', /a\.yaml: name: is b/],
  ['name: a\ndescription: d\ncommand: ["{pyton}"]', /unknown placeholder \{pyton\}; there are python/],
  ['name: a\ncommand: [', /a\.yaml:2/],
  ['', /a\.yaml: \(top level\)/],
])('the agent file %j is refused with an error that names the file and the key or line', async (yaml, message) => {
  await writeFile(join(folder, 'a.yaml'), yaml);
  await expect(loadAgent(folder, 'a')).rejects.toMatchObject({
    code: 'bad_input',
    message: expect.stringMatching(message),
  });
});

test('an unknown agent is refused with a list of the known ones, and so is a name that leads out of the agents’ folder', async () => {
  await expect(loadAgent(agentsFolder, 'aider')).rejects.toThrow(/known agents: oneshot, repair/);
  await expect(loadAgent(agentsFolder, '../package')).rejects.toThrow(/is not an agent's name/);
});
