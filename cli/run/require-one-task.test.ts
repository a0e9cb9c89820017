import { join, resolve } from 'node:path';
import { expect, test } from 'vitest';
import { runConfig } from '../../core/run-config/run-config.ts';
import { temporaryHome, writeFiles } from '../../tests/support/harness/sandbox-fixtures.ts';
import { findTask } from './try-agent.ts';

const config = runConfig.parse({ model: 'm', tasks: ['t'], iterations: 1 });

test('a folder of several tasks in place of one is refused with their names and with a command that tries the first', async () => {
  await using place = await temporaryHome();
  const { home } = place;
  const names = ['b', 'a', ...Array.from({ length: 8 }, (_, i) => `n${i}`)];
  await writeFiles(home, {
    'few/README.md': '',
    'few/notes/text.md': '',
    'few/two/task.toml': '',
    'few/one/instruction.md': '',
    ...Object.fromEntries(names.map((name) => [`many/${name}/task.toml`, ''])),
  });
  const find = (folder: string) => findTask(join(home, folder), config, home);
  await expect(find('few')).rejects.toMatchObject({
    code: 'bad_input',
    message: `${join(home, 'few')} is no task, it has 2: one, two. Name one: npx trialgate try ${join(home, 'few/one')}`,
  });
  await expect(find('many')).rejects.toThrow('it has 10: a, b, n0, n1, n2, n3, n4, n5, and 2 more. Name one: ');
  await expect(find('none')).rejects.toThrow(/^no folder .*none/);
  await expect(find('few/notes')).rejects.toThrow(/task\.toml is missing/);
  expect(await findTask(resolve('tasks/train/add'), config, home)).toMatchObject({ kind: 'folder' });
});
