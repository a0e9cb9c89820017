import { spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createServer } from 'node:tls';
import { afterEach, beforeEach, expect, onTestFinished, test, vi } from 'vitest';
import { KubernetesApiServer } from '../../../../tests/support/fakes/kubernetes-api-server.ts';
import { Followed } from '../../../../tests/support/harness/followed.ts';
import { until } from '../../../../tests/support/harness/until.ts';
import { kubernetes } from './kubernetes.ts';

const hasOpenssl = spawnSync('openssl', ['version']).status === 0;

let server: KubernetesApiServer;
let followed: Followed;
beforeEach(async () => {
  server = await new KubernetesApiServer().start();
});
afterEach(async () => {
  await followed.stop();
  await server.stop();
});

/** Follows the pods with `app=engine`. */
function follow(more: object = {}): void {
  const options = { selector: 'app=engine', namespace: 'serving', port: 8000, api: server.url, ...more };
  followed = new Followed(kubernetes, { engines: [], enginesKubernetes: options });
}

/** The engines that were found last, a draining one in brackets. */
function engines(): string[] {
  const last = followed.findings.findLast((finding) => 'engines' in finding);
  if (!last || !('engines' in last)) return [];
  return last.engines
    .map(({ url, draining }) => (draining ? `(${url})` : url))
    .map((text) => text.replace('http://', '').replace(':8000', ''))
    .toSorted();
}

const failure = (): string | null => {
  const last = followed.findings.at(-1);
  return last && 'failure' in last ? last.failure : null;
};

const become = (expected: string[]) => until(() => JSON.stringify(engines()) === JSON.stringify(expected));
const lists = (): number => server.asked.filter((asked) => asked === 'list').length;

test('a ready pod is an engine, one that is not ready or terminates drains, and one that ends, is deleted or loses its label is none', async () => {
  server.apply({ name: 'a', ip: '10.0.0.1' });
  server.apply({ name: 'starting', ip: '10.0.0.2', ready: false });
  server.apply({ name: 'unplaced', ip: null, ready: false });
  server.apply({ name: 'other', ip: '10.0.0.9', labels: { app: 'web' } });
  server.apply({ name: 'six', ip: 'fd00::7' });
  follow();
  await become(['(10.0.0.2)', '10.0.0.1', '[fd00::7]']);
  server.apply({ name: 'starting', ready: true });
  server.apply({ name: 'unplaced', ip: '10.0.0.3', ready: true });
  await become(['10.0.0.1', '10.0.0.2', '10.0.0.3', '[fd00::7]']);
  server.apply({ name: 'a', terminating: true });
  server.apply({ name: 'starting', ready: false });
  await become(['(10.0.0.1)', '(10.0.0.2)', '10.0.0.3', '[fd00::7]']);
  server.delete('a');
  server.apply({ name: 'starting', phase: 'Failed' });
  server.apply({ name: 'six', labels: { app: 'web' } });
  await become(['10.0.0.3']);
  server.apply({ name: 'other', labels: { app: 'engine' } });
  await become(['10.0.0.3', '10.0.0.9']);
  expect(lists()).toBe(1);
});

test('a new pod at the address of an old one serves while the old one terminates', async () => {
  server.apply({ name: 'old', ip: '10.0.0.1', terminating: true });
  server.apply({ name: 'new', ip: '10.0.0.1' });
  follow();
  await become(['10.0.0.1']);
  server.delete('old');
  server.apply({ name: 'last', ip: '10.0.0.2' });
  await become(['10.0.0.1', '10.0.0.2']);
});

test('a list of several pages is read to its end', async () => {
  server.page = 2;
  for (let i = 1; i <= 5; i++) server.apply({ name: `pod-${i}`, ip: `10.0.0.${i}` });
  follow();
  await become([1, 2, 3, 4, 5].map((i) => `10.0.0.${i}`));
  expect(lists()).toBe(3);
});

test('a watch that ends, or is cut in the middle of a line, goes on after its last event, and nothing in between is lost', async () => {
  server.apply({ name: 'a', ip: '10.0.0.1' });
  follow();
  await until(() => server.watches === 1);
  server.cut();
  server.apply({ name: 'b', ip: '10.0.0.2' });
  server.delete('a');
  await become(['10.0.0.2']);
  server.end();
  server.apply({ name: 'c', ip: '10.0.0.3' });
  await become(['10.0.0.2', '10.0.0.3']);
  expect([lists(), failure()]).toEqual([1, null]);
});

test('after a bookmark a watch goes on from there, even when all changes before it are forgotten', async () => {
  server.apply({ name: 'a', ip: '10.0.0.1' });
  follow();
  await until(() => server.watches === 1);
  server.forget();
  server.bookmark();
  server.apply({ name: 'b', ip: '10.0.0.2' });
  await become(['10.0.0.1', '10.0.0.2']);
  server.cut();
  await until(() => server.watches === 1 && server.asked.length === 3);
  expect(lists()).toBe(1);
});

test.each([true, false])(
  'when the server has forgotten where a watch goes on (410, as the reply’s status: %s), the pods are listed anew',
  async (byStatus) => {
    server.saysGoneByStatus = byStatus;
    server.apply({ name: 'a', ip: '10.0.0.1' });
    follow();
    await until(() => server.watches === 1);
    server.end();
    server.apply({ name: 'b', ip: '10.0.0.2' });
    server.delete('a');
    server.forget();
    await become(['10.0.0.2']);
    await until(() => server.watches === 1);
    expect([server.asked, failure()]).toEqual([['list', 'watch 101', 'watch 101', 'list', 'watch 104'], null]);
  },
);

test('while the API server is dead the last engines stay, and afterwards those that are there then are found', async () => {
  server.apply({ name: 'a', ip: '10.0.0.1' });
  follow();
  await until(() => server.watches === 1);
  await server.stop();
  await until(() => failure()?.includes('the pods with app=engine cannot be watched: '));
  expect(engines()).toEqual(['10.0.0.1']);
  server.delete('a');
  server.apply({ name: 'b', ip: '10.0.0.2' });
  await server.start();
  await become(['10.0.0.2']);
  expect(failure()).toBeNull();
});

test('a service account that may not read pods is told what to do', async () => {
  server.refuses = 403;
  follow();
  await until(() => failure() !== null);
  expect(failure()).toMatch(/answers 403: pods is forbidden: allow the service account to list and watch pods/);
});

test('outside of a pod, without an address of the API server, it says what to name', async () => {
  follow({ api: undefined });
  await until(() => failure() !== null);
  expect(failure()).toMatch(/the gateway runs in no pod: name the API server \(--engines-kubernetes-api\)/);
});

test.runIf(hasOpenssl)(
  'in a pod it speaks TLS with the cluster’s authority and the service account’s token, which it reads anew for each request',
  async () => {
    const account = mkdtempSync(join(tmpdir(), 'service-account-'));
    const gate = await openGate(account);
    vi.stubEnv('KUBERNETES_SERVICE_HOST', '127.0.0.1');
    vi.stubEnv('KUBERNETES_SERVICE_PORT', String(gate.port));
    onTestFinished(() => {
      vi.unstubAllEnvs();
      rmSync(account, { recursive: true });
      gate.close();
    });
    server.token = 'first';
    writeFileSync(join(account, 'token'), 'first\n');
    writeFileSync(join(account, 'namespace'), 'serving');
    server.apply({ name: 'a', ip: '10.0.0.1' });
    follow({ api: undefined, namespace: undefined, account });
    await become(['10.0.0.1']);
    await until(() => server.watches === 1);
    server.token = 'second';
    writeFileSync(join(account, 'token'), 'second\n');
    server.end();
    server.apply({ name: 'b', ip: '10.0.0.2' });
    await become(['10.0.0.1', '10.0.0.2']);
    expect([lists(), failure()]).toEqual([1, null]);
  },
);

/** Opens TLS before the API server, and writes the authority of its certificate into the folder of the account. */
async function openGate(account: string): Promise<{ port: number; close: () => void }> {
  const [key, cert] = [join(account, 'tls.key'), join(account, 'ca.crt')];
  const subject = ['-subj', '/CN=kubernetes', '-addext', 'subjectAltName=IP:127.0.0.1'];
  const made = [
    'req',
    '-x509',
    '-newkey',
    'rsa:2048',
    '-nodes',
    '-days',
    '2',
    ...subject,
    '-keyout',
    key,
    '-out',
    cert,
  ];
  spawnSync('openssl', made, { stdio: 'ignore' });
  const inner = Number(new URL(server.url).port);
  const gate = createServer({ key: readFileSync(key), cert: readFileSync(cert) }, (socket) => {
    const to = connect(inner, '127.0.0.1');
    socket.pipe(to).pipe(socket);
    for (const [one, other] of [
      [socket, to],
      [to, socket],
    ] as const)
      one.on('error', () => {}).on('close', () => other.destroy());
  });
  gate.listen(0, '127.0.0.1');
  await once(gate, 'listening');
  const address = gate.address();
  return { port: typeof address === 'object' && address ? address.port : 0, close: () => gate.close() };
}
