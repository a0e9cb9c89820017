import { join } from 'node:path';
import { expect, test } from 'vitest';
import { loadAgent } from '../../activities/sandbox/load-agent.ts';
import { temporaryHome, writeFiles } from '../../tests/support/harness/sandbox-fixtures.ts';
import { readRunFile } from './read-run-file.ts';

test('of a run file or an agent file that is not there, the refusal names the file beside it that was probably meant', async () => {
  await using place = await temporaryHome();
  const at = (name: string): string => join(place.home, name);
  await writeFiles(place.home, { 'my-run.yaml': '', 'solver.yaml': '', 'runs/run.yaml': '' });
  const refused = (message: string) => ({ code: 'bad_input', message });
  for (const wrong of ['my-rum.yaml', 'my-run', 'my-run.yml'])
    await expect(readRunFile(at(wrong))).rejects.toMatchObject(
      refused(`there is no run file ${at(wrong)}. Did you mean ${at('my-run.yaml')}?`),
    );
  await expect(readRunFile(at('another.json'))).rejects.toMatchObject(
    refused(`there is no run file ${at('another.json')}`),
  );
  await expect(readRunFile(at('runs'))).rejects.toThrow(/runs is a folder: name the run file in it/);
  await expect(loadAgent(at('slover.yaml'))).rejects.toMatchObject(
    refused(`agents: there is no ${at('slover.yaml')}. Did you mean ${at('solver.yaml')}?`),
  );
});

test('a run file with an alias that names nothing is refused as bad input with its file', async () => {
  await using place = await temporaryHome();
  await writeFiles(place.home, { 'run.yaml': 'model: *none\n' });
  const file = join(place.home, 'run.yaml');
  await expect(readRunFile(file)).rejects.toMatchObject({
    code: 'bad_input',
    message: expect.stringMatching(/run\.yaml: Unresolved alias .*none/),
  });
});
