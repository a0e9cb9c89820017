import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { lookup } from 'node:dns/promises';
import { readFileSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { createServer as createHttpServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { createServer, type ListenOptions, type Server, type Socket } from 'node:net';
import { hostname } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { buffer, text } from 'node:stream/consumers';
import { describe, expect, onTestFinished, test } from 'vitest';
import type { Sandbox } from './empty-sandbox.ts';
import { gatewayAddress, proxyVariables, reachedNetwork, type Network } from './network.ts';
import {
  isolations,
  sandboxWith,
  shell,
  taskWith,
  temporaryHome,
} from '../../tests/support/harness/sandbox-fixtures.ts';
import { verify } from './verify.ts';
import { bubblewrapBackend } from './bubblewrap-backend.ts';
import { detectIsolation } from './isolation.ts';

const isolation = (await isolations()).find(({ kind }) => kind === 'bubblewrap');

test.each([
  ['http://127.0.0.1:8700', { host: '127.0.0.1', port: 8700, insideUrl: 'http://127.0.0.1:8700', name: null }],
  ['http://[::1]:9000/base', { host: '::1', port: 9000, insideUrl: 'http://127.0.0.1:9000/base', name: null }],
  ['http://10.0.0.7', { host: '10.0.0.7', port: 80, insideUrl: 'http://127.0.0.1:8700', name: null }],
  [
    'https://gateway.example/a',
    { host: 'gateway.example', port: 443, insideUrl: 'https://gateway.example:8700/a', name: 'gateway.example' },
  ],
])(
  'inside a sandbox the URL of the gateway %s keeps its host name and path, and leads to the sandbox’s own loopback',
  (url, address) => {
    expect(gatewayAddress(url)).toMatchObject(address);
  },
);

test('only a sandbox with a list of hosts gets the variables of a proxy, by which the gateway and loopback are left out', () => {
  const url = 'https://gateway.example/a';
  const listed = proxyVariables({ kind: 'gateway', url, folder: '', hosts: ['pypi.org'] });
  expect(listed).toMatchObject({
    HTTP_PROXY: 'http://127.0.0.1:8701',
    https_proxy: 'http://127.0.0.1:8701',
    NO_PROXY: '127.0.0.1,localhost,::1,gateway.example',
  });
  const onItsPort = proxyVariables({ kind: 'gateway', url: 'http://10.0.0.7:8701', folder: '', hosts: ['pypi.org'] });
  expect(onItsPort.ALL_PROXY).toBe('http://127.0.0.1:8702');
  for (const network of [{ kind: 'gateway', url, folder: '' }, { kind: 'none' }, { kind: 'host' }] as const)
    expect(proxyVariables(network)).toEqual({});
});

test('without bubblewrap an agent with a list of hosts reaches all that its host reaches', async () => {
  const best = await detectIsolation();
  const kinds = (['bubblewrap', 'user', 'none'] as const).map((kind) => bubblewrapBackend({ ...best, kind }));
  expect(kinds.map((backend) => reachedNetwork(backend, ['pypi.org']))).toEqual([['pypi.org'], 'host', 'host']);
});

const ANY_PORT = { port: 0, host: '127.0.0.1' };

const portOf = (server: Server): number => {
  const address = server.address();
  return address !== null && typeof address === 'object' ? address.port : 0;
};

async function listening(server: Server, where: ListenOptions): Promise<Server> {
  server.listen(where);
  await once(server, 'listening');
  onTestFinished(() => void server.close());
  return server;
}

async function fresh(): Promise<Sandbox> {
  const folder = await temporaryHome();
  onTestFinished(() => folder[Symbol.asyncDispose]());
  return sandboxWith(folder.home, {});
}

type Handler = (request: IncomingMessage, response: ServerResponse) => unknown;

/** Starts a gateway with this handler. */
async function gatewayOf(handler: Handler): Promise<{ server: ReturnType<typeof createHttpServer>; url: string }> {
  const server = createHttpServer((request, response) => void handler(request, response));
  await listening(server, ANY_PORT);
  onTestFinished(() => server.closeAllConnections());
  return { server, url: `http://127.0.0.1:${portOf(server)}` };
}

const toGateway = (url: string, sandbox: Sandbox): Network => ({ kind: 'gateway', url, folder: sandbox.root });

/** Tries to reach the given targets and prints the ones that answered. */
const PROBE = `
import json, os, socket, sys
wanted = json.loads(sys.argv[1])
reached = []
def attempt(name, family, kind, address, data=None):
    s = socket.socket(family, kind)
    s.settimeout(3)
    try:
        s.connect(address)
        if data: s.send(data); s.recv(10)
        reached.append(name)
    except OSError: pass
    finally: s.close()
for port in wanted["tcp"]: attempt(f"tcp {port}", socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", port))
for port in wanted["tcp"]: attempt(f"tcp6 {port}", socket.AF_INET6, socket.SOCK_STREAM, ("::1", port))
attempt("udp", socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", wanted["udp"]), b"hello")
attempt("abstract", socket.AF_UNIX, socket.SOCK_STREAM, "\\0" + wanted["abstract"])
for host in wanted["hosts"]: attempt(f"host {host}", socket.AF_INET, socket.SOCK_STREAM, (host, wanted["tcp"][0]))
attempt("outside", socket.AF_INET, socket.SOCK_DGRAM, ("192.0.2.1", 53))
try: socket.getaddrinfo("example.com", 80); reached.append("dns")
except OSError: pass
attempt("netlink", socket.AF_NETLINK, socket.SOCK_RAW, (0, 0))
print(json.dumps(reached))
`;

/** Returns all TCP ports on which something listens on this host's loopback, including those of PostgreSQL and Temporal. */
function listeningPorts(): number[] {
  const rows = ['/proc/net/tcp', '/proc/net/tcp6'].flatMap((file) => readFileSync(file, 'utf8').split('\n').slice(1));
  const local = rows.map((row) => row.trim().split(/\s+/)).filter((fields) => fields[3] === '0A');
  return [...new Set(local.map((fields) => parseInt(fields[1]?.split(':').at(-1) ?? '0', 16)))];
}

/** Starts listeners on this host of each kind that another trial or a part of the deployment could have. */
async function listeners(): Promise<{ wanted: string; tcpPort: number }> {
  const tcp = await listening(
    createServer((socket) => void socket.end()),
    ANY_PORT,
  );
  const abstract = `trialgate-test-${process.pid}`;
  await listening(createServer(), { path: `\0${abstract}` });
  const udp = createSocket('udp4', (message, peer) => udp.send(message, peer.port, peer.address));
  udp.bind(0, '127.0.0.1');
  await once(udp, 'listening');
  onTestFinished(() => void udp.close());
  const tcpPort = portOf(tcp);
  const others = listeningPorts().filter((port) => port !== tcpPort);
  const hosts = ['127.0.0.2', '0.0.0.0'];
  return { tcpPort, wanted: JSON.stringify({ tcp: [tcpPort, ...others], udp: udp.address().port, abstract, hosts }) };
}

describe.skipIf(!isolation)('under bubblewrap (skipped where it is absent or does not work)', () => {
  if (!isolation) return;

  test('an agent reaches only the gateway; with `network: host` it reaches everything that the host does', async () => {
    const sandbox = await fresh();
    const { url } = await gatewayOf((_, response) => response.end('ok'));
    const { wanted, tcpPort } = await listeners();
    const script = `python3 -c '${PROBE}' '${wanted}'`;
    const reached = async (network: Network): Promise<string[]> => {
      const { stdout, stderr } = await shell(isolation, sandbox, script, { network });
      expect(stderr).toBe('');
      return JSON.parse(stdout);
    };
    const open = await reached({ kind: 'host' });
    expect(open).toEqual(expect.arrayContaining([`tcp ${tcpPort}`, 'udp', 'abstract']));
    // A netlink socket shows only this namespace's own loopback, not the host's.
    expect(await reached(toGateway(url, sandbox))).toEqual([`tcp ${new URL(url).port}`, 'netlink']);
    expect(await reached({ kind: 'none' })).toEqual(['netlink']);
  });

  test('a verifier reaches no network, not even the gateway', async () => {
    await using folder = await temporaryHome();
    const { wanted } = await listeners();
    const judge = `python3 $TESTS_DIR/probe.py '${wanted}'; echo 1 > $LOGS_DIR/verifier/reward.txt`;
    const task = await taskWith(folder.home, judge, { 'tests/probe.py': PROBE });
    const sandbox = await sandboxWith(folder.home, {}, task);
    let stdout = '';
    await verify({
      task,
      sandbox,
      backend: bubblewrapBackend(isolation),
      signal: new AbortController().signal,
      onOutput: (output) => (stdout = output.stdout),
    });
    expect(JSON.parse(stdout)).toEqual(['netlink']);
  });

  test('curl, urllib and Node reach the gateway from a sandbox by the gateway’s URL, without a proxy setting', async () => {
    const sandbox = await fresh();
    const { url } = await gatewayOf(async (request, response) => {
      response.end(`${request.method} ${request.url} ${request.headers.host} ${await text(request)}`);
    });
    await writeFile(
      join(sandbox.work, 'ask.py'),
      'import sys, urllib.request as r; print(r.urlopen(sys.argv[1] + "/python", b"body").read().decode())',
    );
    const script = [
      `curl -sS ${url}/curl -d body && echo`,
      `python3 ask.py ${url}`,
      `/opt/node -e 'fetch("${url}/node", {method: "POST", body: "body"}).then(async (r) => console.log(await r.text()))'`,
    ].join('\n');
    const mounts = [{ host: process.execPath, inside: '/opt/node', writable: false }];
    const { stdout, stderr } = await shell(isolation, sandbox, script, {
      network: toGateway(url, sandbox),
      mounts,
      memoryMb: 1024,
    });
    const host = new URL(url).host;
    expect([stderr, stdout.trim().split('\n')]).toEqual([
      '',
      ['curl', 'python', 'node'].map((name) => `POST /${name} ${host} body`),
    ]);
  });

  test('an agent reaches the gateway by the gateway’s host name', async ({ skip }) => {
    const address = await lookup(hostname(), { family: 4 }).catch(() => null);
    if (!address) return skip('the name of this machine has no address');
    const sandbox = await fresh();
    const server = createHttpServer((request, response) => response.end(request.headers.host));
    const host = `${hostname()}:${portOf(await listening(server, { port: 0, host: address.address }))}`;
    const { stdout } = await shell(isolation, sandbox, `curl -sS http://${host}`, {
      network: toGateway(`http://${host}`, sandbox),
    });
    expect(stdout).toBe(host);
  });

  test('a streamed reply reaches an agent’s OpenAI client in parts: each part arrives before the next is sent', async () => {
    const sandbox = await fresh();
    let goOn = (): void => {};
    const { url } = await gatewayOf(async (request, response) => {
      if (request.url === '/go-on') return response.end(goOn());
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      for (const content of ['a', 'b', 'c']) {
        const delivered = new Promise<void>((done) => (goOn = done));
        response.write(`data: ${JSON.stringify({ choices: [{ index: 0, delta: { content } }] })}\n\n`);
        await delivered;
      }
      response.end('data: [DONE]\n\n');
    });
    await writeFile(
      join(sandbox.work, 'stream.mjs'),
      `import OpenAI from '/opt/node_modules/openai/index.mjs';
      const client = new OpenAI({ baseURL: '${url}/v1', apiKey: 'k' });
      const stream = await client.chat.completions.create({ model: 'policy', stream: true, messages: [] });
      for await (const part of stream) { process.stdout.write(part.choices[0].delta.content); await fetch('${url}/go-on'); }`,
    );
    const mounts = [
      { host: process.execPath, inside: '/opt/node', writable: false },
      { host: resolve(dirname(import.meta.dirname), '../node_modules'), inside: '/opt/node_modules', writable: false },
    ];
    const { stdout, stderr } = await shell(isolation, sandbox, '/opt/node stream.mjs', {
      network: toGateway(url, sandbox),
      mounts,
      memoryMb: 1024,
    });
    expect([stdout, stderr]).toEqual(['abc', '']);
  });

  test('a sandbox can have 200 calls to the gateway under way at once, and 20 MB reach the gateway and come back whole', async () => {
    const sandbox = await fresh();
    const waiting: ServerResponse[] = [];
    const { url } = await gatewayOf(async (request, response) => {
      if (request.url === '/echo') return response.end(await buffer(request));
      if (waiting.push(response) === 200) waiting.forEach((each) => each.end('all'));
    });
    const script = `
import os, threading, urllib.request as r
answers = []
def ask(): answers.append(r.urlopen("${url}/wait").read())
threads = [threading.Thread(target=ask) for _ in range(200)]
[t.start() for t in threads]; [t.join() for t in threads]
body = os.urandom(20_000_000)
print(len(answers), r.urlopen("${url}/echo", body).read() == body)`;
    const result = await shell(isolation, sandbox, `python3 -c '${script}'`, {
      network: toGateway(url, sandbox),
      processes: 300,
      memoryMb: 4096,
      seconds: 60,
    });
    expect([result.stdout, result.stderr, result.reason, result.gatewayFailures]).toEqual([
      '200 True\n',
      '',
      'exited',
      0,
    ]);
  });

  test('a connection that the agent or the gateway cuts is cut for the other; one that the agent half-closes still gets its answer', async () => {
    const sandbox = await fresh();
    const cutByAgent = Promise.withResolvers<void>();
    const gateway = await listening(
      createServer({ allowHalfOpen: true }, (socket: Socket) => {
        socket.on('error', () => {});
        socket.once('data', (data) => {
          const asked = String(data);
          if (asked === 'cut me') return socket.write('part', () => socket.destroy());
          if (asked === 'I leave') return socket.once('end', cutByAgent.resolve);
          socket.once('end', () => socket.end('after your end'));
        });
      }),
      ANY_PORT,
    );
    const script = `
import socket
def start(text):
    s = socket.create_connection(("127.0.0.1", ${portOf(gateway)}))
    s.send(text)
    return s
def rest(s):
    data = b""
    while part := s.recv(100): data += part
    return data.decode()
half = start(b"half"); half.shutdown(socket.SHUT_WR)
start(b"I leave").close()
print([rest(start(b"cut me")), rest(half)])`;
    const url = `http://127.0.0.1:${portOf(gateway)}`;
    const { stdout } = await shell(isolation, sandbox, `python3 -c '${script}'`, { network: toGateway(url, sandbox) });
    expect(stdout).toBe("['part', 'after your end']\n");
    await cutByAgent.promise;
  });

  describe('failures of the gateway that the host counts for an agent', () => {
    const nonsense = (port: string): string =>
      `for i in 1 2 3; do head -c 300000 /dev/urandom | curl -sS --http0.9 telnet://127.0.0.1:${port} || true; done`;

    test('a gateway that does not listen counts as a gateway failure', async () => {
      const sandbox = await fresh();
      const { server, url } = await gatewayOf(() => {});
      server.close();
      await once(server, 'close');
      const result = await shell(isolation, sandbox, `curl -s ${url}`, { network: toGateway(url, sandbox) });
      expect([result.exitCode === 0, result.gatewayFailures]).toEqual([false, 1]);
    });

    test('a gateway that dies during a reply counts as a gateway failure', async () => {
      const sandbox = await fresh();
      const { server, url } = await gatewayOf((_, response) => {
        response.write('part', () => server.close().closeAllConnections());
      });
      const result = await shell(isolation, sandbox, `curl -s ${url}`, { network: toGateway(url, sandbox) });
      expect([result.exitCode === 0, result.gatewayFailures]).toEqual([false, 1]);
    });

    test('a live gateway that refuses bad input or cuts a reply counts as no gateway failure', async () => {
      const sandbox = await fresh();
      const { url } = await gatewayOf((request, response) => {
        if (request.url === '/cut') response.write('part', () => response.destroy());
      });
      const script = `${nonsense(new URL(url).port)}; curl -s ${url}/cut`;
      const result = await shell(isolation, sandbox, script, { network: toGateway(url, sandbox) });
      expect([result.exitCode === 0, result.gatewayFailures]).toEqual([false, 0]);
    });

    test('an agent that kills its own relay loses the gateway, and this counts as no gateway failure', async () => {
      const sandbox = await fresh();
      const { url } = await gatewayOf((_, response) => response.end('ok'));
      const script = `curl -s ${url} && pkill -9 -f '[r]elay.py'; sleep 0.1; curl -s ${url}`;
      const result = await shell(isolation, sandbox, script, { network: toGateway(url, sandbox) });
      expect([result.stdout, result.exitCode, result.gatewayFailures]).toEqual(['ok', 7, 0]);
    });
  });

  test('a command in a sandbox with a relay has the same exit code, signals, child processes and descriptors as without one', async () => {
    const sandbox = await fresh();
    const { url } = await gatewayOf((_, response) => response.end('ok'));
    const network = toGateway(url, sandbox);
    expect(await shell(isolation, sandbox, 'exit 7', { network })).toMatchObject({ exitCode: 7 });
    const waits = `python3 -c 'import os
try: os.wait()
except ChildProcessError: print("no children")'; yes | head -1; ls /proc/self/fd`;
    const behind = await shell(isolation, sandbox, waits, { network });
    expect(behind).toMatchObject({ stdout: expect.stringContaining('no children\ny\n'), stderr: '' });
    expect(behind.stdout).toBe((await shell(isolation, sandbox, waits)).stdout);
  });
});
