import { writeFile } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { expect, onTestFinished, test, vi } from 'vitest';
import { INSTALLS } from '../folders.ts';
import { identify } from '../supervisor/processes.ts';
import { writeState } from '../supervisor/state.ts';
import { fakeHub } from '../../tests/support/fakes/fake-hub.ts';
import { temporaryDeployment } from '../../tests/support/harness/temporary-deployment.ts';
import { trainFile } from './train-file.ts';

test('a run with a misspelt model or a wrong name is refused before anything is asked of the deployment', async ({
  signal,
}) => {
  await using hub = await fakeHub({});
  // Nothing listens there, so what asks the deployment fails with another sentence.
  const { config: deployment, home, remove } = await temporaryDeployment({ TRIALGATE_TEMPORAL_ADDRESS: '127.0.0.1:9' });
  try {
    const settings = { model: INSTALLS.smallModel };
    const nothing = { failure: null, ports: {}, engines: [], ranks: null, notes: [], components: [] };
    writeState(home, { supervisor: identify(process.pid), status: 'ready', settings, ...nothing });
    const file = join(home, 'run.json');
    const model = 'SmolLM2-135M-Instrukt';
    await writeFile(file, JSON.stringify({ model, tasks: [resolve('tasks/train/add')], iterations: 1 }));
    const train = (run: string) => trainFile(file, { deployment, run }, signal);
    await expect(train('r')).rejects.toMatchObject({
      code: 'bad_input',
      message: expect.stringMatching(
        /^there is no model SmolLM2-135M-Instrukt: .*Did you mean .*SmolLM2-135M-Instruct\?$/,
      ),
    });
    expect(hub.asked).toHaveLength(1);
    await expect(train('a b')).rejects.toThrow(/^run id "a b": use letters/);
  } finally {
    await remove();
  }
});

test('a run that starts without a check says at once what was not tried', async ({ signal }) => {
  const { config: deployment, home, remove } = await temporaryDeployment({ TRIALGATE_TEMPORAL_ADDRESS: '127.0.0.1:9' });
  const said = vi.spyOn(console, 'error').mockReturnValue();
  onTestFinished(() => void vi.restoreAllMocks());
  try {
    const file = join(home, 'run.json');
    await writeFile(file, JSON.stringify({ model: 'm', tasks: [resolve('tasks/train/add')], iterations: 1 }));
    await trainFile(file, { deployment, check: false }, signal).catch(() => {});
    expect(said.mock.calls).toEqual([[expect.stringMatching(/^WARNING: --no-check: .* is blocked after its start$/)]]);
  } finally {
    await remove();
  }
});
