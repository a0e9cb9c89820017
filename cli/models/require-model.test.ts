import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, beforeEach, expect, test, vi } from 'vitest';
import { fakeHub } from '../../tests/support/fakes/fake-hub.ts';
import { identify } from '../supervisor/processes.ts';
import { writeState } from '../supervisor/state.ts';
import { requireModel } from './require-model.ts';

let home = '';
const signal = new AbortController().signal;
const check = (model: string) => requireModel(model, { home, override: ', or --no-check' }, signal);

/** Makes a folder with these files. */
async function folderWith(path: string, ...files: string[]): Promise<string> {
  await mkdir(path, { recursive: true });
  for (const file of files) await writeFile(join(path, file), '{}');
  return path;
}

beforeAll(async () => {
  home = await mkdtemp(join(tmpdir(), 'trialgate-models-'));
  // A deployment lives whose engine serves this model.
  const settings = { model: 'org/Served-1B-Instruct' };
  const supervisor = identify(process.pid);
  const nothing = { failure: null, ports: {}, engines: [], ranks: null, notes: [], components: [] };
  writeState(home, { supervisor, status: 'ready', settings, ...nothing });
});
afterAll(() => rm(home, { recursive: true }));
beforeEach(() => {
  for (const name of ['HF_HUB_OFFLINE', 'HF_HOME', 'HF_HUB_CACHE', 'HF_TOKEN']) vi.stubEnv(name, undefined);
});
afterEach(() => void vi.unstubAllEnvs());

test('a folder with a model passes, and one without a configuration or weights is refused with what it lacks', async () => {
  await check(await folderWith(join(home, 'whole'), 'config.json', 'model.safetensors'));
  const bare = await folderWith(join(home, 'bare'), 'config.json', 'pytorch_model.bin');
  await expect(check(bare)).rejects.toMatchObject({
    code: 'bad_input',
    message: `${bare} has no .safetensors file: convert its weights first`,
  });
  const empty = await folderWith(join(home, 'empty'));
  await expect(check(empty)).rejects.toThrow(`${empty} has no config.json`);
  for (const missing of [join(home, 'missing'), './missing', 'a/b/c'])
    await expect(check(missing)).rejects.toThrow(`there is no folder ${missing}: name a model's folder`);
});

test('a name is looked up in the deployment’s downloads, and then on the hub, once', async () => {
  await using hub = await fakeHub({ 'org/known': 200 });
  const cached = join(home, 'cache/huggingface/hub/models--org--cached');
  await folderWith(join(cached, 'snapshots/abc'), 'config.json', 'model.safetensors');
  await folderWith(join(cached, 'refs'));
  await writeFile(join(cached, 'refs/main'), 'abc');
  await check('org/cached');
  expect(hub.asked).toEqual([]);
  await check('org/known');
  expect(hub.asked).toEqual(['/org/known/resolve/main/config.json']);
});

test('a name that the hub does not have is refused with the model of the engine that was meant', async () => {
  await using hub = await fakeHub({});
  await expect(check('Served-1B-Instrukt')).rejects.toMatchObject({
    code: 'bad_input',
    message: expect.stringMatching(
      /^there is no model Served-1B-Instrukt: .* has none of this name, .*\. Did you mean org\/Served-1B-Instruct\?$/,
    ),
  });
  await expect(check('someone/unlike-any-other-name')).rejects.toMatchObject({
    code: 'bad_input',
    message: expect.stringMatching(/^there is no model someone\/unlike.*ORGANIZATION\/NAME/),
  });
  expect(hub.asked).toHaveLength(2);
});

test('where the hub cannot be asked, a name is refused with what to do', async () => {
  await using hub = await fakeHub({ 'org/busy': 503 });
  const busy = check('org/busy');
  await expect(busy).rejects.toMatchObject({ code: 'missing_prerequisite' });
  await expect(busy).rejects.toThrow(
    /^org\/busy is neither installed nor downloaded, and .* answered 503, .*: name the folder of a model, or let this machine reach the hub, or --no-check$/,
  );
  expect(hub.asked).toHaveLength(1);
  vi.stubEnv('HF_ENDPOINT', 'http://127.0.0.1:9');
  await expect(check('org/busy')).rejects.toThrow(/http:\/\/127\.0\.0\.1:9 cannot be reached \(.*\)/);
  await expect(check('Served-1B-Instrukt')).rejects.toThrow(
    /Did you mean org\/Served-1B-Instruct\? Otherwise name the folder/,
  );
  vi.stubEnv('HF_HUB_OFFLINE', '1');
  await expect(check('org/busy')).rejects.toThrow(/HF_HUB_OFFLINE forbids/);
});
