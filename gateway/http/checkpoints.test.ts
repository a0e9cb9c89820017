import { randomUUID } from 'node:crypto';
import { cpSync, mkdirSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { attemptKey, relayKey, runKey } from '../../core/keys.ts';
import { sha256Of, writeCheckpoint } from '../../tests/support/harness/checkpoints.ts';
import { ADMIN_KEY, IN_WORKERD, SECRET } from '../../tests/support/harness/gateways.ts';
import { rawRequest, rawText } from '../../tests/support/harness/raw-request.ts';
import { useSharedTokenGateway } from '../../tests/support/harness/token-gateway.ts';
import { checkpointList } from '../relay/checkpoints.ts';

// A Worker has no files.
describe.skipIf(IN_WORKERD)('the checkpoints that relay workers fetch', () => {
  const home = join(tmpdir(), `trialgate-home-${randomUUID()}`);
  const checkpoints = join(home, 'checkpoints');
  const gateway = useSharedTokenGateway({ engines: ['relay'], checkpoints });
  afterAll(() => rmSync(home, { recursive: true, force: true }));

  const SECRETS = '{"secret": "of the deployment"}';
  const WEIGHTS = 'the weights of version 1';
  beforeAll(() => {
    writeCheckpoint(checkpoints, 'v1', {
      weights: { 'model.safetensors': WEIGHTS },
      others: {
        'config.json': '{}',
        'tokenizer.json': '{}',
        'trainer/state.json': '{}',
        'trainer/config.json': '{}',
        'notes.txt': 'mine',
      },
    });
    writeFileSync(join(home, 'secrets.json'), SECRETS);
  });

  const at = (path: string) => `/relay/checkpoints/${path}`;
  const get = (path: string) => gateway.admin('GET', at(path));
  const filesOf = async (name: string) => checkpointList.parse(await (await get(name)).json()).files;
  const pathsOf = async (name: string) => (await filesOf(name)).map(({ path }) => path).toSorted();
  const codeOf = async (reply: Response): Promise<unknown> => (await reply.json()).error.code;

  test('are the files that an engine loads, each with its size and digest, and not the trainer’s state', async () => {
    expect(await filesOf('v1')).toEqual([
      { path: 'model.safetensors', bytes: WEIGHTS.length, sha256: sha256Of(WEIGHTS) },
      { path: 'config.json', bytes: 2, sha256: sha256Of('{}') },
    ]);
  });

  test('are given by their digest, whole or from a byte on', async () => {
    const path = `v1/${sha256Of(WEIGHTS)}`;
    const whole = await get(path);
    expect([whole.status, await whole.text()]).toEqual([200, WEIGHTS]);
    const ranged = (range: string) =>
      fetch(`${gateway.gateway.url}${at(path)}`, { headers: { authorization: `Bearer ${ADMIN_KEY}`, range } });
    const rest = await ranged('bytes=4-');
    expect([rest.status, rest.headers.get('content-range')]).toEqual([206, `bytes 4-23/24`]);
    expect([rest.headers.get('content-length'), await rest.text()]).toEqual(['20', WEIGHTS.slice(4)]);
    expect((await ranged('bytes=24-')).status).toBe(416);
    expect(await (await ranged('bytes=0-3')).text()).toBe(WEIGHTS);
    const head = await gateway.admin('HEAD', at(path));
    expect([head.status, head.headers.get('content-length')]).toEqual([200, '24']);
    expect(await codeOf(await get(`v1/${sha256Of('another file')}`))).toBe('checkpoint_not_found');
  });

  test('need the admin key: neither an agent’s key, nor a run’s, nor the one of the routes to engines opens them', async () => {
    const keys = ['', 'wrong', attemptKey(SECRET, 'trial', 1), runKey(SECRET, 'run'), relayKey(SECRET)];
    for (const key of keys)
      for (const path of ['v1', `v1/${sha256Of(WEIGHTS)}`]) {
        const reply = await fetch(`${gateway.gateway.url}${at(path)}`, { headers: { authorization: `Bearer ${key}` } });
        expect([key, reply.status]).toEqual([key, 401]);
      }
  });

  test('are those of a finished checkpoint in the deployment’s folder: no path leads out of it', async () => {
    writeCheckpoint(home, 'elsewhere', { weights: { 'model.safetensors': 'x' } });
    symlinkSync(join(home, 'elsewhere'), join(checkpoints, 'link'));
    cpSync(join(checkpoints, 'v1'), join(checkpoints, '.tmp-v9-host-1-x'), { recursive: true });
    writeCheckpoint(checkpoints, 'unfinished', {});
    rmSync(join(checkpoints, 'unfinished/manifest.json'));
    for (const name of [
      'none',
      'link',
      '.tmp-v9-host-1-x',
      'unfinished',
      '..%2felsewhere',
      '%2e%2e',
      'v1%2ftrainer',
      'v1%00',
    ])
      expect([name, (await get(name)).status]).toEqual([name, 404]);
    for (const target of [
      'v1/../../elsewhere',
      'v1/../../secrets.json',
      '../secrets.json',
      'v1/config.json',
      'v1/%2e%2e%2fv1',
      '/elsewhere',
    ]) {
      const { status, text } = await rawRequest(
        gateway.gateway.url,
        rawText({ method: 'GET', target: at(target), key: ADMIN_KEY }),
      );
      expect([target, status >= 400, text.includes('of the deployment')]).toEqual([target, true, false]);
    }
  });

  test('follow links where a checkpoint links its base model, and nowhere else', async () => {
    const tensors = join(home, 'base.safetensors');
    writeFileSync(tensors, 'base');
    const secrets = join(home, 'secrets.json');
    writeCheckpoint(checkpoints, 'adapter', {
      weights: { 'adapter_model.safetensors': 'a' },
      links: { 'base/model.safetensors': tensors },
      linked: { 'base/model.safetensors': 'base' },
    });
    expect(await pathsOf('adapter')).toEqual(['adapter_model.safetensors', 'base/model.safetensors']);
    expect(await (await get(`adapter/${sha256Of('base')}`)).text()).toBe('base');
    writeCheckpoint(checkpoints, 'v0', {
      version: 0,
      links: { 'model.safetensors': tensors, 'notes.json': secrets, 'notes.safetensors': secrets },
      linked: { 'model.safetensors': 'base' },
    });
    expect(await pathsOf('v0')).toEqual(['model.safetensors']);
    // No step writes links, and `base` is a folder.
    writeCheckpoint(checkpoints, 'linked', { links: { 'config.json': secrets } });
    writeCheckpoint(checkpoints, 'linked-weights', {
      links: { 'model.safetensors': secrets },
      linked: { 'model.safetensors': SECRETS },
    });
    writeCheckpoint(checkpoints, 'linked-base', { links: { base: home }, linked: { 'base/secrets.json': SECRETS } });
    writeCheckpoint(checkpoints, 'folder', {
      weights: { 'model.safetensors/x': 'x' },
      linked: { 'model.safetensors': '' },
    });
    for (const name of ['linked', 'linked-weights', 'linked-base', 'folder'])
      for (const path of [name, `${name}/${sha256Of(SECRETS)}`])
        expect([path, await codeOf(await get(path))]).toEqual([path, 'checkpoint_damaged']);
  });
});

describe.skipIf(IN_WORKERD)('a checkpoint that cannot be read', () => {
  const checkpoints = join(tmpdir(), `trialgate-checkpoints-${randomUUID()}`);
  const gateway = useSharedTokenGateway({ engines: ['relay'], checkpoints });
  afterAll(() => rmSync(checkpoints, { recursive: true, force: true }));
  const get = async (name: string) => (await gateway.admin('GET', `/relay/checkpoints/${name}`)).json();

  test.each(['{"version"', '{"files": {}}'])('is damaged if its manifest is %s', async (manifest) => {
    const folder = writeCheckpoint(checkpoints, 'v1', {});
    writeFileSync(join(folder, 'manifest.json'), manifest);
    expect(await get('v1')).toMatchObject({
      error: { code: 'checkpoint_damaged', message: 'the manifest of checkpoint v1 cannot be read' },
    });
  });

  test('is not one that was removed: the worker asks again', async () => {
    const folder = writeCheckpoint(checkpoints, 'v2', {});
    rmSync(join(folder, 'manifest.json'));
    // Reading a folder fails, as a disk does.
    mkdirSync(join(folder, 'manifest.json'));
    expect((await gateway.admin('GET', '/relay/checkpoints/v2')).status).toBe(500);
  });
});

describe.skipIf(IN_WORKERD)('a gateway that is not in relay mode', () => {
  const gateway = useSharedTokenGateway({ checkpoints: tmpdir() });
  test('gives no checkpoints', async () => {
    expect((await gateway.admin('GET', '/relay/checkpoints/v1')).status).toBe(404);
  });
});
