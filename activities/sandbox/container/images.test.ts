import { once } from 'node:events';
import { symlinkSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import Docker from 'dockerode';
import { expect, test } from 'vitest';
import { temporaryHome, writeFiles } from '../../../tests/support/harness/sandbox-fixtures.ts';
import type { Engine } from './engine.ts';
import { prepareImage } from './images.ts';

type Route = (request: IncomingMessage, response: ServerResponse) => void;

/** Answers as an engine does: it has no image until one is fetched or built, and `answer` says how that goes. */
async function engineThat(answer: Route, config: object = {}) {
  const requests: string[] = [];
  let has = false;
  const server = createServer((request, response) => {
    requests.push(`${request.method} ${request.url}`);
    response.setHeader('content-type', 'application/json');
    if (request.url?.endsWith('/json')) {
      response.statusCode = has ? 200 : 404;
      return void response.end(JSON.stringify(has ? { Id: 'sha256:1', Config: config } : { message: 'no such image' }));
    }
    if (/\/(images\/create|build)\?/.test(request.url ?? '')) {
      has = true;
      return void request.resume().once('end', () => answer(request, response));
    }
    if (request.url?.includes('/containers/create')) return void response.writeHead(201).end('{"Id":"c"}');
    response.statusCode = request.method === 'DELETE' ? 204 : 404;
    response.end(request.method === 'DELETE' ? undefined : '{"message":"no such path"}');
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  const port = typeof address === 'object' && address !== null ? address.port : 0;
  const docker = new Docker({ host: '127.0.0.1', port, protocol: 'http' });
  const kernelLimits = { memory: true, cpus: true, processes: true, storage: false };
  const engine: Engine = {
    docker,
    name: 'an engine',
    isPodman: false,
    isRootless: false,
    runtimes: [],
    kernelLimits,
  };
  return {
    engine,
    requests,
    [Symbol.asyncDispose]: async () => {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

const optionsIn = (home: string, signal = AbortSignal.timeout(60_000)) => ({ home, signal });
const says =
  (status: number, text: string): Route =>
  (_, response) =>
    void response.writeHead(status).end(text);
const line = (error: string): Route => says(200, `${JSON.stringify({ error })}\n`);

test.each<[string, Route, string]>([
  ['is unknown', says(404, '{"message":"manifest unknown"}'), 'TrialgateError'],
  ['is denied', line('pull access denied for example'), 'TrialgateError'],
  ['has a malformed name', says(400, '{"message":"invalid reference format"}'), 'TrialgateError'],
  ['is of a registry that fails', line('received unexpected HTTP status: 503 Service Unavailable'), 'SandboxError'],
  ['is of a registry that does not answer', line('dial tcp 1.2.3.4:443: i/o timeout'), 'SandboxError'],
  ['does not fit on the disk', line('write /layer: no space left on device'), 'SandboxError'],
  ['is asked of an engine that fails', says(500, '{"message":"database is locked"}'), 'SandboxError'],
])('an image that %s is refused, or counts as a failure of the host', async (_, answer, name) => {
  await using folder = await temporaryHome();
  await using fake = await engineThat(answer);
  await expect(prepareImage(fake.engine, { name: 'example:1' }, optionsIn(folder.home))).rejects.toMatchObject({
    name,
    message: expect.stringContaining('the image example:1 cannot be fetched'),
  });
});

test.each<[string, Route, string]>([
  ['a step fails', line("The command '/bin/sh -c false' returned a non-zero code: 1"), 'TrialgateError'],
  ['the Dockerfile is wrong', says(400, '{"message":"dockerfile parse error"}'), 'TrialgateError'],
  ['the disk is full', line('no space left on device'), 'SandboxError'],
  ['the engine goes away', (_, response) => void response.destroy(), 'SandboxError'],
])('when %s, a build fails as the task’s or the host’s fault', async (_, answer, name) => {
  await using folder = await temporaryHome();
  await writeFiles(folder.home, { 'environment/Dockerfile': 'FROM scratch' });
  await using fake = await engineThat(answer);
  const source = { folder: join(folder.home, 'environment') };
  await expect(prepareImage(fake.engine, source, optionsIn(folder.home))).rejects.toMatchObject({
    name,
    message: expect.stringContaining('environment/Dockerfile: the image cannot be built'),
  });
  expect(fake.requests.find((each) => each.includes('/build?'))).toMatch(/memory=\d+/);
});

test('a build that takes longer than the task allows is refused', async () => {
  await using folder = await temporaryHome();
  await writeFiles(folder.home, { 'environment/Dockerfile': 'FROM scratch' });
  await using fake = await engineThat(() => {});
  const source = { folder: join(folder.home, 'environment'), buildSeconds: 0.5 };
  await expect(prepareImage(fake.engine, source, optionsIn(folder.home))).rejects.toMatchObject({
    code: 'bad_input',
    message: expect.stringContaining('it takes longer than 0.5 s'),
  });
});

test('a caller who gives up does not end the fetch that another waits for', async () => {
  await using folder = await temporaryHome();
  const held = Promise.withResolvers<ServerResponse>();
  await using fake = await engineThat((_, response) => held.resolve(response));
  const stop = new AbortController();
  const first = prepareImage(fake.engine, { name: 'example:1' }, optionsIn(folder.home, stop.signal));
  first.catch(() => {});
  const second = prepareImage(fake.engine, { name: 'example:1' }, optionsIn(folder.home));
  const response = await held.promise;
  // The second caller has asked the engine for the image, and waits by now.
  await sleep(500);
  stop.abort(new Error('cancelled'));
  await expect(first).rejects.toThrow('cancelled');
  response.end('{"status":"done"}\n');
  expect(await second).toMatchObject({ id: 'sha256:1', workdir: '/app', files: null });
  expect(fake.requests.filter((each) => each.includes('/images/create'))).toHaveLength(1);
});

test('the build of another link is another image', async () => {
  await using folder = await temporaryHome();
  await writeFiles(folder.home, { 'environment/Dockerfile': 'FROM scratch' });
  const names = [];
  for (const target of ['a', 'b']) {
    symlinkSync(target, join(folder.home, 'environment/link'));
    await using fake = await engineThat(says(200, '{}\n'));
    await prepareImage(fake.engine, { folder: join(folder.home, 'environment') }, optionsIn(folder.home));
    names.push(new URL(fake.requests.find((each) => each.includes('/build?'))?.split(' ')[1] ?? '', 'http://x').search);
    await rm(join(folder.home, 'environment/link'));
  }
  expect(names[0]).not.toBe(names[1]);
});

test.each([
  ['/tmp', '/tmp'],
  ['/tests/a', '/tests'],
  ['/home', '/home/agent'],
  ['/usr/', '/usr'],
  ['/etc', '/etc'],
  ['/dev/shm', '/dev'],
])('an image whose WORKDIR is %s is refused, because the work folder would hide %s', async (workdir, hidden) => {
  await using folder = await temporaryHome();
  await using fake = await engineThat(says(200, '{}\n'), { WorkingDir: workdir });
  await expect(prepareImage(fake.engine, { name: 'example:1' }, optionsIn(folder.home))).rejects.toMatchObject({
    code: 'bad_input',
    message: expect.stringContaining(`would hide ${hidden}:`),
  });
});

test.each(['/usr/src/app', '/work', '/root', undefined])('an image whose WORKDIR is %s is used', async (workdir) => {
  await using folder = await temporaryHome();
  await using fake = await engineThat(says(200, '{}\n'), { WorkingDir: workdir });
  const image = await prepareImage(fake.engine, { name: 'example:1' }, optionsIn(folder.home));
  expect(image.workdir).toBe(workdir ?? '/app');
});

test('an image with volumes is refused, because no limit counts their files', async () => {
  await using folder = await temporaryHome();
  await using fake = await engineThat(says(200, '{}\n'), { Volumes: { '/data': {} } });
  await expect(prepareImage(fake.engine, { name: 'example:1' }, optionsIn(folder.home))).rejects.toThrow(
    'the image example:1: it has volumes (/data)',
  );
});
