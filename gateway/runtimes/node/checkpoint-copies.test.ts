import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import {
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { freePort } from '../../../core/free-port.ts';
import { sha256Of, writeCheckpoint } from '../../../tests/support/harness/checkpoints.ts';
import { ADMIN_KEY, IN_WORKERD } from '../../../tests/support/harness/gateways.ts';
import { openWire } from '../../../tests/support/harness/relay.ts';
import { useSharedTokenGateway } from '../../../tests/support/harness/token-gateway.ts';
import { CheckpointConnection } from '../../relay/checkpoint-connection.ts';
import { readText } from '../../engines/connection.ts';
import { CheckpointCopies } from './checkpoint-copies.ts';
import { UndiciConnection } from './engine-connection.ts';

// A Worker has no files.
describe.skipIf(IN_WORKERD)('a relay worker’s copies of checkpoints', () => {
  const root = join(tmpdir(), `trialgate-copies-${randomUUID()}`);
  const checkpoints = join(root, 'deployment/checkpoints');
  const gateway = useSharedTokenGateway({ engines: ['relay'], checkpoints });
  let [folder, models]: [string, string] = ['', ''];
  let stopping: AbortController;
  const opened: CheckpointCopies[] = [];
  beforeEach(() => {
    mkdirSync(checkpoints, { recursive: true });
    folder = mkdtempSync(join(root, 'copies-'));
    models = '{"data": []}';
    stopping = new AbortController();
  });
  afterEach(async () => {
    stopping.abort();
    await Promise.all(opened.splice(0).map((copies) => copies.close()));
    rmSync(root, { recursive: true, force: true });
  });

  const own = () => join(folder, 'trialgate-checkpoints');
  const open = async (at = gateway.gateway.url, freeBytes?: () => Promise<number>) => {
    const copies = await CheckpointCopies.open(
      {
        ...{ folder, gateway: at, adminKey: ADMIN_KEY, log: () => {} },
        modelsOfEngine: () => Promise.resolve(models),
        backOffMs: { least: 1, most: 20 },
        ...(freeBytes ? { freeBytes } : {}),
      },
      stopping.signal,
    );
    opened.push(copies);
    return copies;
  };
  const copyOf = (path: string) => join(own(), 'copies', path, 'trialgate-copy');
  const contentOf = (path: string): Record<string, string> =>
    Object.fromEntries(
      readdirSync(copyOf(path))
        .toSorted()
        .map((name) => [name, readFileSync(join(copyOf(path), name), 'utf8')]),
    );
  const hasCopy = (path: string) => statSync(copyOf(path), { throwIfNoEntry: false }) !== undefined;
  const model = (name: string, weights: string, version = 1) =>
    writeCheckpoint(checkpoints, name, {
      version,
      weights: { 'model.safetensors': weights },
      others: { 'config.json': '{"of": "the model"}', 'tokenizer.json': '{}' },
    });
  const adapter = (name: string) =>
    writeCheckpoint(checkpoints, name, {
      weights: { 'adapter_model.safetensors': name, 'base/model.safetensors': 'base' },
      others: { 'adapter_config.json': '{}', 'base/config.json': '{"of": "the base"}' },
    });
  /** Makes copies that look as old as their place in the list says, the oldest first. */
  const fetchAll = async (copies: CheckpointCopies, paths: string[]) => {
    for (const [i, path] of paths.entries()) {
      await copies.fetch(path).done;
      utimesSync(copyOf(path), i + 1, i + 1);
    }
  };

  test('have what an engine loads: a model, an adapter without its base, and a base alone', async () => {
    const copies = await open();
    const [v1, a1] = [model('v1', 'weights'), adapter('a1')];
    for (const path of [v1, a1, `${a1}/base`]) await copies.fetch(path).done;
    expect(contentOf(v1)).toEqual({ 'config.json': '{"of": "the model"}', 'model.safetensors': 'weights' });
    expect(contentOf(a1)).toEqual({ 'adapter_config.json': '{}', 'adapter_model.safetensors': 'a1' });
    expect(contentOf(`${a1}/base`)).toEqual({ 'config.json': '{"of": "the base"}', 'model.safetensors': 'base' });
  });

  test('share files of the same digest, which are not fetched again', async () => {
    const copies = await open();
    const [a1, a2] = [adapter('a1'), adapter('a2')];
    await copies.fetch(`${a1}/base`).done;
    // Whoever fetches it again gets something else.
    writeFileSync(join(a2, 'base/model.safetensors'), 'BASE');
    const { done, progress } = copies.fetch(`${a2}/base`);
    await done;
    expect(contentOf(`${a2}/base`)).toEqual(contentOf(`${a1}/base`));
    const [one, other] = [a1, a2].map((path) => statSync(join(copyOf(`${path}/base`), 'model.safetensors')));
    expect([other?.ino, other?.nlink]).toEqual([one?.ino, 3]);
    expect(progress).toEqual({ fetched: 22, bytes: 22 });
  });

  test('are fetched anew when the deployment has another checkpoint at the same path', async () => {
    const copies = await open();
    await copies.fetch(model('v1', 'one')).done;
    const path = model('v1', 'two');
    await copies.fetch(path).done;
    expect(contentOf(path)['model.safetensors']).toBe('two');
  });

  test('stay when a checkpoint above their path is fetched anew', async () => {
    const copies = await open();
    const below = join(model('v1', 'one'), 'weights/checkpoints/v2');
    model('v2', 'two');
    await fetchAll(copies, [join(checkpoints, 'v1'), below]);
    await copies.fetch(model('v1', 'other')).done;
    expect(contentOf(below)['model.safetensors']).toBe('two');
  });

  test('a download goes on from what a worker that died has left', async () => {
    const copies = await open();
    const path = model('v1', 'first half, second half');
    writeFileSync(join(own(), 'files', `${sha256Of('first half, second half')}.part`), 'first half,');
    // Whoever begins again gets something else.
    writeFileSync(join(path, 'model.safetensors'), '########### second half');
    await copies.fetch(path).done;
    expect(contentOf(path)['model.safetensors']).toBe('first half, second half');
  });

  test('a download begins again where what was left is damaged', async () => {
    const copies = await open();
    const path = model('v1', 'first half, second half');
    writeFileSync(join(own(), 'files', `${sha256Of('first half, second half')}.part`), '\0\0\0\0\0');
    await copies.fetch(path).done;
    expect(contentOf(path)['model.safetensors']).toBe('first half, second half');
  });

  test('a download whose connection is cut again and again goes on each time, and ends with the right content', async () => {
    const wire = await openWire(gateway.gateway.url);
    const copies = await open(wire.url);
    const weights = Array.from({ length: 400_000 }, (_, i) => `number ${i}.`).join('');
    const path = model('v1', weights);
    const { done, progress } = copies.fetch(path);
    let [seen, cuts] = [0, 0];
    const over = new AbortController();
    const ended = done.finally(() => over.abort());
    while (!over.signal.aborted && cuts < 5) {
      if (progress.fetched > seen) {
        seen = progress.fetched;
        wire.link.cut();
        wire.link.restore();
        cuts += 1;
      }
      await new Promise((resolve) => setImmediate(resolve));
    }
    await ended;
    await wire.link.close();
    expect(cuts).toBeGreaterThan(0);
    expect(sha256Of(readFileSync(join(copyOf(path), 'model.safetensors')))).toBe(sha256Of(weights));
  });

  test('a server before the gateway that knows no ranges is asked for the whole file again', async () => {
    const path = model('v1', 'first half, second half');
    const server = createServer(async (request, response) => {
      const reply = await gateway.admin('GET', request.url ?? '');
      response.writeHead(reply.status).end(Buffer.from(await reply.arrayBuffer()));
    });
    const port = await freePort('127.0.0.1');
    server.listen(port, '127.0.0.1');
    await once(server, 'listening');
    const copies = await open(`http://127.0.0.1:${port}`);
    writeFileSync(join(own(), 'files', `${sha256Of('first half, second half')}.part`), 'first half,');
    await copies.fetch(path).done;
    server.close();
    expect(contentOf(path)['model.safetensors']).toBe('first half, second half');
  });

  test('what does not have its digest is never loaded, and the failure names file and cause', async () => {
    const copies = await open();
    const path = model('v1', 'right');
    writeFileSync(join(path, 'model.safetensors'), 'wrong');
    let isLoaded = false;
    const load = copies.load(path, async () => void (isLoaded = true), stopping.signal);
    await expect(load).rejects.toThrow(
      /its file model\.safetensors: .* does not have its SHA-256 .*damaged at the gateway/,
    );
    expect([isLoaded, hasCopy(path)]).toEqual([false, false]);
    expect(readdirSync(join(own(), 'files'))).toEqual([]);
  });

  test('a disk without room for a checkpoint is a failure that says how much is missing and what to do', async () => {
    const copies = await open(undefined, () => Promise.resolve(63 * 2 ** 20));
    await expect(copies.fetch(model('v1', 'x'.repeat(2 ** 20))).done).rejects.toThrow(
      /the disk of the relay worker is full: .* has 63 MiB free and it needs 1 MiB more: make room there/,
    );
    expect(readdirSync(join(own(), 'files'))).toEqual([]);
  });

  test('where the disk has no room beside the two newest models, the older one goes', async () => {
    const hasRoom = () => readdirSync(join(own(), 'files')).length <= 2;
    const copies = await open(undefined, () => Promise.resolve(hasRoom() ? 2 ** 40 : 0));
    const paths = ['v1', 'v2', 'v3'].map((name, i) => model(name, `weights ${i}`, i + 1));
    await fetchAll(copies, paths);
    expect(paths.map(hasCopy)).toEqual([false, true, true]);
  });

  test('only files and folders that the worker made are removed, also where others have the names that it uses', async () => {
    const mine = ['files/mine.txt', 'draft/mine.txt', 'copies/mine.txt', 'trialgate-checkpoints/files/mine.txt'];
    for (const file of mine) {
      mkdirSync(dirname(join(folder, file)), { recursive: true });
      writeFileSync(join(folder, file), 'mine');
    }
    const unfinished = join(own(), 'files', `${sha256Of('of an earlier version')}.part`);
    writeFileSync(unfinished, 'of an');
    await (await open()).fetch(model('v1', 'weights')).done;
    expect(mine.map((file) => readFileSync(join(folder, file), 'utf8'))).toEqual(mine.map(() => 'mine'));
    expect(statSync(unfinished, { throwIfNoEntry: false })).toBeUndefined();
  });

  test('the newest copies stay, and older ones are removed with their files when another is fetched', async () => {
    const copies = await open();
    const paths = ['v1', 'v2', 'v3', 'v4'].map((name, i) => model(name, `weights ${i}`, i + 1));
    await fetchAll(copies, paths);
    expect(paths.map(hasCopy)).toEqual([false, true, true, true]);
    const kept = ['{"of": "the model"}', 'weights 1', 'weights 2', 'weights 3'];
    expect(readdirSync(join(own(), 'files')).toSorted()).toEqual(kept.map(sha256Of).toSorted());
    expect(readdirSync(join(own(), 'copies', checkpoints)).toSorted()).toEqual(['v2', 'v3', 'v4']);
  });

  test('a copy stays while an engine loads it or lists it among its models, however old it is', async () => {
    const copies = await open();
    const paths = ['v1', 'v2', 'v3', 'v4', 'v5', 'v6'].map((name, i) => model(name, `weights ${i}`, i + 1));
    const [loading = '', listed = ''] = paths;
    await fetchAll(copies, [loading, listed]);
    utimesSync(copyOf(listed), 0.5, 0.5);
    models = JSON.stringify({ data: [{ id: 'adapter', root: copyOf(listed) }] });
    const end = Promise.withResolvers<void>();
    const load = copies.load(loading, () => end.promise, stopping.signal);
    await fetchAll(copies, paths.slice(2));
    expect(paths.map(hasCopy)).toEqual([true, true, false, true, true, true]);
    end.resolve();
    await load;
  });

  test('many adapters stay, because an engine reads those again that others have displaced', async () => {
    const copies = await open();
    const paths = Array.from({ length: 18 }, (_, i) => adapter(`a${i}`));
    await fetchAll(copies, paths);
    expect(paths.map(hasCopy)).toEqual(paths.map((_, i) => i >= 2));
  });

  test('nothing is removed while the engine does not say what it has', async () => {
    const copies = await CheckpointCopies.open(
      {
        ...{ folder, gateway: gateway.gateway.url, adminKey: ADMIN_KEY, log: () => {} },
        modelsOfEngine: () => Promise.reject(new Error('the engine restarts')),
        backOffMs: { least: 1, most: 20 },
      },
      stopping.signal,
    );
    opened.push(copies);
    const paths = ['v1', 'v2', 'v3', 'v4'].map((name, i) => model(name, `weights ${i}`, i + 1));
    await fetchAll(copies, paths);
    expect(paths.map(hasCopy)).toEqual([true, true, true, true]);
  });

  test('a copy is there for an engine that goes back to a version that the deployment has removed', async () => {
    const copies = await open();
    const path = model('v1', 'weights');
    await copies.fetch(path).done;
    rmSync(path, { recursive: true });
    utimesSync(copyOf(path), 1, 1);
    await copies.fetch(path).done;
    expect(await copies.load(path, (copy) => Promise.resolve(copy), stopping.signal)).toBe(copyOf(path));
    // It counts as the one that was used last.
    expect(statSync(copyOf(path)).mtimeMs).toBeGreaterThan(1_000);
    await expect(copies.fetch(join(checkpoints, 'v2')).done).rejects.toThrow('does not see it: it was removed');
  });

  test.each([
    '/etc',
    '/srv/checkpoints',
    '/srv/checkpoints/../../etc',
    '/srv/checkpoints/v1/trainer',
    'checkpoints/v1',
    '/a/../checkpoints/v1',
  ])('the path %s, which is that of no checkpoint, is refused', async (path) => {
    const copies = await open();
    await expect(copies.fetch(path).done).rejects.toThrow('it is no checkpoint of a deployment');
    expect(readdirSync(own(), { recursive: true }).toSorted()).toEqual(['copies', 'files']);
  });

  test('checkpoints that are asked for at once are all fetched', async () => {
    const copies = await open();
    const paths = ['v1', 'v2', 'v3'].map((name, i) => model(name, `weights ${i}`, i + 1));
    await Promise.all(paths.map((path) => copies.fetch(path).done));
    expect(paths.map((path) => contentOf(path)['model.safetensors'])).toEqual(['weights 0', 'weights 1', 'weights 2']);
  });

  test('a folder is refused while another worker has it, also under another path', async () => {
    const first = await open();
    const linked = join(root, 'linked');
    symlinkSync(folder, linked);
    folder = linked;
    await expect(open()).rejects.toThrow(
      /another relay worker keeps its checkpoints in .*\/linked: give each worker a folder of its own with --checkpoints/,
    );
    await first.close();
    await open();
  });

  test('a folder whose copies can have no hard links to files is refused at the start', async () => {
    mkdirSync(join(own(), 'copies/linked'), { recursive: true });
    await expect(open()).rejects.toThrow('correct --checkpoints');
  });

  test.each([
    'pytorch_model.bin',
    'modeling.py',
    '../model.safetensors',
    'base/base/model.safetensors',
    '.safetensors',
  ])(
    'a file %s in the list of a gateway is refused: engines get weights in the form of safetensors and their settings alone',
    async (path) => {
      const files = [{ path, bytes: 1, sha256: sha256Of('x') }];
      const server = createServer((_, response) => void response.end(JSON.stringify({ files })));
      const port = await freePort('127.0.0.1');
      server.listen(port, '127.0.0.1');
      await once(server, 'listening');
      const copies = await open(`http://127.0.0.1:${port}`);
      await expect(copies.fetch(model('v1', 'x')).done).rejects.toThrow('lists what is no checkpoint');
      server.close();
      expect(readdirSync(join(own(), 'files'))).toEqual([]);
    },
  );

  test('a folder that cannot be written is refused at the start', async () => {
    writeFileSync(join(folder, 'file'), '');
    folder = join(folder, 'file');
    await expect(open()).rejects.toThrow('correct --checkpoints');
    folder = dirname(folder);
  });

  test('who asks for a checkpoint beforehand is told how much of it is there, until all is', async () => {
    const wire = await openWire(gateway.gateway.url);
    wire.link.cut();
    const copies = await open(wire.url);
    const path = model('v1', 'weights');
    const engine = new UndiciConnection('http://127.0.0.1:1');
    const connection = new CheckpointConnection(engine, copies, () => {}, 20);
    const ask = async () => {
      const { status, body } = await connection.send({
        ...{ method: 'POST', path: '/trialgate/checkpoint', body: JSON.stringify({ path }) },
        signal: stopping.signal,
      });
      return [status, JSON.parse(await readText(body))];
    };
    expect(await ask()).toEqual([200, { ready: false, fetched: 0, bytes: 0 }]);
    wire.link.restore();
    await expect.poll(ask).toEqual([200, { ready: true }]);
    await connection.close();
    await wire.link.close();
  });

  test.each([
    ['/collective_rpc', { method: 'reload_weights', kwargs: {} }],
    ['/collective_rpc', { method: 'reload_weights', kwargs: { weights_path: ['/any/path'] } }],
    ['/v1/load_lora_adapter', { lora_name: 'a' }],
    ['/v1/load_lora_adapter', ['/any/path']],
    ['/update_weights_from_disk', { model_path: null }],
  ])('a request %s %j, which names no path, reaches no engine', async (path, body) => {
    const engine = new UndiciConnection('http://127.0.0.1:1');
    const connection = new CheckpointConnection(engine, await open(), () => {});
    const request = { method: 'POST' as const, path, body: JSON.stringify(body), signal: stopping.signal };
    expect([(await connection.send(request)).status, (await connection.ask(request)).status]).toEqual([400, 400]);
    await connection.close();
  });

  /** A server before the gateway, which answers itself where `answers` has something. */
  const serverBefore = async (answers: (() => { status: number; body: string } | undefined)[]) => {
    const asked: string[] = [];
    const server = createServer(async (request, response) => {
      asked.push(request.url ?? '');
      const given = answers.shift()?.();
      if (given) return void response.writeHead(given.status).end(given.body);
      const reply = await gateway.admin('GET', request.url ?? '');
      response.writeHead(reply.status).end(Buffer.from(await reply.arrayBuffer()));
    });
    const port = await freePort('127.0.0.1');
    server.listen(port, '127.0.0.1');
    await once(server, 'listening');
    return { asked, server, url: `http://127.0.0.1:${port}` };
  };

  test('the gateway is asked again after a refusal that passes, and after a 404 that is not its own', async () => {
    const passing = [404, 408, 425, 429, 503].map((status) => () => ({ status, body: '<html>' }));
    const { asked, server, url } = await serverBefore(passing);
    const copies = await open(url);
    const path = model('v1', 'weights');
    await copies.fetch(path).done;
    server.close();
    expect(contentOf(path)['model.safetensors']).toBe('weights');
    expect(asked.slice(0, 6)).toEqual(Array(6).fill('/relay/checkpoints/v1'));
  });

  test('a load right after its fetch asks the gateway for nothing, and one of a copy that was removed fetches it', async () => {
    const { asked, server, url } = await serverBefore([]);
    const copies = await open(url);
    const paths = ['v1', 'v2', 'v3', 'v4'].map((name, i) => model(name, `weights ${i}`, i + 1));
    await fetchAll(copies, paths);
    const [removed = '', , , last = ''] = paths;
    const until = asked.length;
    const load = (path: string) => copies.load(path, () => Promise.resolve(hasCopy(path)), stopping.signal);
    expect([await load(last), asked.length]).toEqual([true, until]);
    expect([hasCopy(removed), await load(removed), asked.length > until]).toEqual([false, true, true]);
    server.close();
  });

  test('a gateway that gives no checkpoints is named, with what to do', async () => {
    const server = createServer((_, response) => void response.writeHead(404).end('{"error": {"code": "not_found"}}'));
    const port = await freePort('127.0.0.1');
    server.listen(port, '127.0.0.1');
    await once(server, 'listening');
    const copies = await open(`http://127.0.0.1:${port}`);
    await expect(copies.fetch(model('v1', 'weights')).done).rejects.toThrow(
      /gives no checkpoints .*start the worker without --checkpoints/,
    );
    server.close();
  });
});
