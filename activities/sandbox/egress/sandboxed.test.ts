import { bubblewrapBackend } from '../bubblewrap-backend.ts';
import { execFileSync } from 'node:child_process';
import { writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import { createServer as createHttpsServer } from 'node:https';
import { join } from 'node:path';
import { describe, expect, onTestFinished, test } from 'vitest';
import { makeCertificate, OutsideWorld } from '../../../tests/support/harness/outside-world.ts';
import {
  canNest,
  isolations,
  sandboxWith,
  shell,
  specOf,
  taskWith,
  temporaryHome,
} from '../../../tests/support/harness/sandbox-fixtures.ts';
import type { Sandbox } from '../empty-sandbox.ts';
import { proxyVariables, type Network } from '../network.ts';
import { runProcess, type ProcessResult } from '../run-process.ts';
import { verify } from '../verify.ts';

const isolation = (await isolations()).find(({ kind }) => kind === 'bubblewrap');

const certificate = makeCertificate();
const HOSTS = ['allowed.test', '*.allowed.test'];

type Place = { sandbox: Sandbox; world: OutsideWorld; network: Network; gateway: string };

/** Makes a sandbox with a list of hosts, a gateway, and the servers of the outside. */
async function place(hosts: readonly string[] = HOSTS): Promise<Place> {
  const folder = await temporaryHome();
  onTestFinished(() => folder[Symbol.asyncDispose]());
  const sandbox = await sandboxWith(folder.home, {});
  await writeFile(join(sandbox.work, 'ca.pem'), certificate.cert);
  const world = new OutsideWorld().name('allowed.test', 'a.allowed.test', 'other.test');
  await world.serveWeb(certificate);
  const gateway = new OutsideWorld();
  await gateway.serve(
    8700,
    createServer((request, response) => response.end(`gateway ${request.headers.host}`)),
  );
  const url = `http://127.0.0.1:${gateway.ports.get(8700)}`;
  return { sandbox, world, gateway: url, network: { kind: 'gateway', url, folder: sandbox.root, hosts } };
}

/** Prints a package without content, which pip accepts. */
const MAKE_WHEEL = `
import io, sys, zipfile
made = io.BytesIO()
with zipfile.ZipFile(made, "w") as wheel:
    wheel.writestr("thing-1.0.dist-info/METADATA", "Metadata-Version: 2.1\\nName: thing\\nVersion: 1.0\\n")
    wheel.writestr("thing-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
    wheel.writestr("thing-1.0.dist-info/RECORD", "")
sys.stdout.buffer.write(made.getvalue())`;

const openssl = { SSL_CERT_FILE: '/app/ca.pem', CURL_CA_BUNDLE: '/app/ca.pem', NODE_EXTRA_CA_CERTS: '/app/ca.pem' };

describe.skipIf(!isolation)('under bubblewrap (skipped where it is absent or does not work)', () => {
  if (!isolation) return;

  /** Runs a script as an agent with a list of hosts would run. */
  const run = ({ sandbox, world, network }: Place, script: string, more: object = {}): Promise<ProcessResult> => {
    const signal = new AbortController().signal;
    const env = { ...openssl, ...proxyVariables(network), HOME: '/tmp' };
    const mounts = [{ host: process.execPath, inside: '/opt/node', writable: false }];
    const options = { network, env, mounts, memoryMb: 2048, seconds: 60, ...more };
    return runProcess({ ...specOf(isolation, sandbox, script, options), signal }, world.outside);
  };

  test('curl, urllib, http.client and Node reach listed hosts by HTTP and HTTPS, and the gateway without the proxy', async () => {
    const at = await place();
    await writeFile(
      join(at.sandbox.work, 'ask.py'),
      'import sys, urllib.request as r; print(*[r.urlopen(url, b"body").read().decode() for url in sys.argv[1:]], sep="\\n")',
    );
    const urls = 'http://allowed.test/x https://a.allowed.test/y';
    const node = `for (const url of process.argv.slice(1)) console.log(await (await fetch(url, { method: 'POST', body: 'body' })).text())`;
    const { stdout, stderr, egress, gatewayFailures } = await run(
      at,
      [
        `for url in ${urls} ${at.gateway}; do curl -sS -d body $url; echo; done`,
        `python3 ask.py ${urls} ${at.gateway}`,
        `/opt/node --input-type=module -e "${node}" ${urls} ${at.gateway}`,
      ].join('\n'),
    );
    const answers = ['POST allowed.test /x body', 'POST a.allowed.test /y body', `gateway ${new URL(at.gateway).host}`];
    expect([stderr, stdout.trim().split('\n')]).toEqual(['', [...answers, ...answers, ...answers]]);
    expect(egress).toMatchObject([
      { host: 'allowed.test', port: 80, fault: null, count: 3 },
      { host: 'a.allowed.test', port: 443, fault: null, count: 3 },
    ]);
    expect([at.world.asked.map(({ serverName }) => serverName).includes('a.allowed.test'), gatewayFailures]).toEqual([
      true,
      0,
    ]);
  });

  test('pip downloads a package, and git lists a repository, through the proxy', async ({ skip }) => {
    const at = await place();
    const wheel = execFileSync(isolation.python.executable, ['-c', MAKE_WHEEL], { maxBuffer: 2 ** 20 });
    const files: Record<string, string | Buffer> = {
      '/simple/thing/': '<a href="/files/thing-1.0-py3-none-any.whl">thing-1.0-py3-none-any.whl</a>',
      '/files/thing-1.0-py3-none-any.whl': wheel,
      '/repo/info/refs': `${'a'.repeat(40)}\trefs/heads/main\n`,
      '/repo/HEAD': 'ref: refs/heads/main\n',
    };
    await at.world.serve(
      443,
      createHttpsServer(certificate, (request, response) => {
        const found = files[(request.url ?? '').split('?')[0] ?? ''];
        response.writeHead(found === undefined ? 404 : 200, { 'content-type': 'text/html' }).end(found);
      }),
    );
    const pip = `python3 -m pip --version > /dev/null 2>&1 || { echo no pip; exit; }
      python3 -m pip download --no-deps --disable-pip-version-check -q --cert ca.pem -i https://allowed.test/simple/ thing 2>&1; ls *.whl
      python3 -m pip download --no-deps --disable-pip-version-check --retries 1 --cert ca.pem -i https://other.test/simple/ thing 2>&1`;
    const { stdout } = await run(at, pip);
    if (stdout.startsWith('no pip')) return skip('the sandbox’s Python has no pip');
    expect(stdout).toMatch(/403 other\.test:443 was refused: it is not in the list of this sandbox/);
    expect(stdout).toMatch(/^thing-1\.0-py3-none-any\.whl$/m);
    const git = await run(at, 'git -c http.sslCAInfo=/app/ca.pem ls-remote https://a.allowed.test/repo');
    expect(git.stdout || git.stderr).toMatch(/a{40}\trefs\/heads\/main|git: command not found|git: not found/);
  });

  test('a sandbox with a list has no other way: no route, no name servers, no other port of this machine, and no UDP', async () => {
    const at = await place();
    const script = `
import json, socket, struct
reached = []
def attempt(name, family, kind, address, data=None):
    s = socket.socket(family, kind)
    s.settimeout(2)
    try:
        s.connect(address)
        if data: s.send(data); s.recv(10)
        reached.append(name)
    except OSError: pass
    finally: s.close()
for host in ("1.2.3.4", "10.1.2.3", "169.254.169.254"):
    attempt("tcp", socket.AF_INET, socket.SOCK_STREAM, (host, 443))
    attempt("udp", socket.AF_INET, socket.SOCK_DGRAM, (host, 53))
attempt("server", socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", ${at.world.ports.get(443)}))
try: socket.getaddrinfo("allowed.test", 443); reached.append("dns")
except OSError: pass
query = b"\\0\\x1d\\0\\1\\1\\0\\0\\1\\0\\0\\0\\0\\0\\0\\7allowed\\4test\\0\\0\\1\\0\\1"
s = socket.create_connection(("127.0.0.1", 8701)); s.settimeout(5); s.send(query)
try: reached += ["dns over the proxy"] if s.recv(100)[:2] == b"\\0\\x1d" or s.recv(100)[2:4] == b"\\0\\x1d" else []
except OSError: pass
print(json.dumps(reached))`;
    await writeFile(join(at.sandbox.work, 'probe.py'), script);
    const { stdout, stderr } = await run(at, 'python3 probe.py');
    expect([stdout.trim(), stderr]).toEqual(['[]', '']);
    expect(at.world.connected).toEqual([]);
  });

  test('curl learns why it was refused, also when the TLS name is another', async () => {
    const at = await place();
    const { stdout, egress } = await run(
      at,
      `curl -s http://other.test/ ; curl -sv https://other.test/ 2>&1 | grep '< HTTP'
      curl -s --resolve other.test:443:127.0.0.1 --connect-to other.test:443:allowed.test:443 https://other.test/ ; echo "exit $?"
      curl -s -H 'Host: other.test' http://allowed.test/`,
    );
    expect(stdout).toMatch(
      /^Trialgate: other\.test:80 was refused: it is not in the list of this sandbox\.\nThis sandbox reaches/,
    );
    expect(stdout).toMatch(/< HTTP\/1\.1 403 other\.test:443 was refused: it is not in the list of this sandbox/);
    expect(stdout).toMatch(/exit 35\nTrialgate: allowed\.test:80 was refused: the Host header names another host/);
    expect(egress.map(({ host, port, fault }) => `${host}:${port} ${fault}`)).toEqual([
      'other.test:80 refused: it is not in the list of this sandbox',
      'other.test:443 refused: it is not in the list of this sandbox',
      'allowed.test:443 refused: the TLS server name is other.test',
      'allowed.test:80 refused: the Host header names another host than the request',
    ]);
  });

  test('600 connections at once to the proxy are all answered, and the gateway is still reached', async () => {
    const at = await place();
    const script = `
import asyncio
async def ask(host, port, text):
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(text)
    answer = await reader.read()
    writer.close()
    return answer
async def main():
    one = b"GET http://allowed.test/ HTTP/1.1\\r\\nHost: allowed.test\\r\\nConnection: close\\r\\n\\r\\n"
    many = [asyncio.create_task(ask("127.0.0.1", 8701, one)) for _ in range(600)]
    await asyncio.sleep(0.01)
    gateway = await ask("127.0.0.1", ${new URL(at.gateway).port}, b"GET / HTTP/1.1\\r\\nHost: g\\r\\nConnection: close\\r\\n\\r\\n")
    print(sum(b" 200 OK" in answer for answer in await asyncio.gather(*many)), b"gateway g" in gateway)
asyncio.run(main())`;
    await writeFile(join(at.sandbox.work, 'many.py'), script);
    const { stdout, stderr } = await run(at, 'ulimit -n 2000; python3 many.py');
    expect([stdout, stderr]).toEqual(['600 True\n', '']);
    expect(at.world.open).toBe(0);
  });

  test('an agent may have as many processes as its limit, and its relays do not count', async () => {
    const at = await place();
    const script = 'for i in 1 2 3 4 5; do sleep 0.5 & done; wait; echo all';
    const { stdout, reason } = await run(at, script, { processes: 8 });
    expect([stdout, reason]).toEqual(['all\n', 'exited']);
  });

  test('a fork of a warm process has the proxy too', async ({ skip }) => {
    if (!(await canNest(isolation))) return skip('this machine gives a sandbox no namespaces of its own');
    const at = await place();
    const script = 'curl -s http://other.test/; curl -s $GATEWAY; curl -sv https://allowed.test/ 2>&1 | grep "< HTTP"';
    const env = { ...proxyVariables(at.network), GATEWAY: at.gateway };
    const { stdout, egress } = await shell({ ...isolation, isWarm: true }, at.sandbox, script, {
      network: at.network,
      env,
      memoryMb: 2048,
    });
    expect(stdout).toMatch(/^Trialgate: other\.test:80 was refused/);
    expect(stdout).toMatch(/gateway 127\.0\.0\.1/);
    // This trial has the machine's own name servers, and none knows the name.
    expect(stdout).toMatch(/< HTTP\/1\.1 502 allowed\.test:443 failed: the name servers have no address for it/);
    expect(egress).toHaveLength(2);
  });

  test('a task’s tests reach the hosts that the task lists for them, and not the gateway', async () => {
    await using folder = await temporaryHome();
    const judge = `curl -s http://other.test/ > $LOGS_DIR/verifier/said; cat $LOGS_DIR/verifier/said; env | grep -c _PROXY; echo 1 > $LOGS_DIR/verifier/reward.txt`;
    const toml = '[verifier]\nnetwork_mode = "allowlist"\nallowed_hosts = ["pypi.org"]\n';
    const task = await taskWith(folder.home, judge, { 'task.toml': toml });
    const sandbox = await sandboxWith(folder.home, {}, task);
    let seen: Pick<ProcessResult, 'stdout' | 'egress'> = { stdout: '', egress: [] };
    const verdict = await verify({
      task,
      sandbox,
      backend: bubblewrapBackend(isolation),
      signal: new AbortController().signal,
      onOutput: (output) => (seen = output),
    });
    expect(verdict.rewards).toEqual({ reward: 1 });
    expect(seen.stdout).toMatch(
      /other\.test:80 was refused: it is not in the list of this sandbox\.\nThis sandbox reaches pypi\.org\./,
    );
    expect(seen.egress).toMatchObject([{ host: 'other.test', port: 80 }]);
  });
});
