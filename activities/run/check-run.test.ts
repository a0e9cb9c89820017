import { symlinkSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { taskWith, temporaryHome } from '../../tests/support/harness/sandbox-fixtures.ts';
import { runConfig } from '../../core/run-config/run-config.ts';
import { checkRun } from './check-run.ts';

test.each([
  ['', {}, null],
  ['', { network: 'host' }, null],
  ['network_mode = "no-network"', {}, null],
  ['network_mode = "no-network"', { network: 'host' }, /gives its agent no network, and the agent oneshot reaches all/],
  ['network_mode = "public"', { network: 'host' }, null],
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

test.each(['environment/sub', 'tests'])('the check of a run refuses a task with a link in %s', async (part) => {
  await using place = await temporaryHome();
  const { folder } = await taskWith(place.home, 'true', { [`${part}/file`]: '' });
  symlinkSync('file', join(folder, part, 'link'));
  const config = runConfig.parse({ model: 'm', iterations: 1, tasks: [folder] });
  await expect(checkRun(config, null)).rejects.toThrow(`/${part}/link: a sandbox gets no links and special files`);
});
