import { once } from 'node:events';
import { mkdtempSync, readdirSync, rmSync, statSync } from 'node:fs';
import { connect, createServer, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Duplex } from 'node:stream';
import { text } from 'node:stream/consumers';
import { setTimeout as sleep } from 'node:timers/promises';
import { connect as connectTls } from 'node:tls';
import { describe, expect, onTestFinished, test } from 'vitest';
import { makeCertificate, OutsideWorld } from '../../../tests/support/harness/outside-world.ts';
import { until } from '../../../tests/support/harness/until.ts';
import { egressText, type EgressRow } from './egress-log.ts';
import { openEgressProxy, type EgressOptions, type EgressProxy } from './egress-proxy.ts';

const certificate = makeCertificate();
const HOSTS = ['allowed.test', '*.allowed.test', 'ported.test:8022', 'ported.test:8443', '10.1.2.3'];

type Opened = {
  world: OutsideWorld;
  proxy: EgressProxy;
  ask: (raw: string | Buffer) => Promise<string>;
  dial: () => Socket;
};

async function open(options: Partial<EgressOptions> = {}): Promise<Opened> {
  const folder = mkdtempSync(join(tmpdir(), 'trialgate-egress-'));
  const world = new OutsideWorld().name('allowed.test', 'a.allowed.test', 'other.test', 'ported.test');
  const proxy = await openEgressProxy({ hosts: HOSTS, folder, outside: world.outside, ...options });
  onTestFinished(async () => {
    await proxy.close();
    rmSync(folder, { recursive: true });
  });
  const dial = (): Socket => connect({ path: proxy.socket, allowHalfOpen: true }).on('error', () => {});
  const ask = async (raw: string | Buffer): Promise<string> => {
    const socket = dial();
    socket.write(raw);
    return text(socket).catch(() => '(cut)');
  };
  return { world, proxy, ask, dial };
}

const get = (url: string, host = new URL(url).host, more = ''): string =>
  `GET ${url} HTTP/1.1\r\nHost: ${host}\r\n${more}Connection: close\r\n\r\n`;
const CONNECTED = 'HTTP/1.1 200 Connection established\r\n\r\n';

/** Opens a tunnel. Returns the socket, of which the answer has been read. */
async function tunnel({ dial }: Opened, authority: string): Promise<Socket> {
  const socket = dial();
  socket.write(`CONNECT ${authority} HTTP/1.1\r\nHost: ${authority}\r\n\r\n`);
  const [answer]: Buffer[] = await once(socket, 'data');
  expect(String(answer)).toBe(CONNECTED);
  return socket;
}

/** Asks by HTTPS through a tunnel. Returns the body, or the error of the client. */
async function askHttps(opened: Opened, authority: string, servername: string | undefined): Promise<string> {
  const socket = await tunnel(opened, authority);
  const client = connectTls({
    socket,
    ca: certificate.cert,
    ...(servername === undefined ? { checkServerIdentity: () => undefined } : { servername }),
  });
  client.end(`GET /tls HTTP/1.1\r\nHost: inside.tls\r\nConnection: close\r\n\r\n`);
  return text(client).then(
    (answer) => answer.split('\r\n\r\n')[1] ?? answer,
    (error: Error) => /unrecognized name/.exec(error.message)?.[0] ?? error.message,
  );
}

const faults = (rows: EgressRow[]): string[] =>
  rows.map(({ host, port, fault }) => `${host}:${port} ${fault ?? 'allowed'}`);

describe('plain HTTP', () => {
  test('a request to a listed host is passed on without the headers of the hop, and its answer too', async () => {
    const { world, ask } = await open();
    await world.serveWeb();
    const answer = await ask(
      'POST http://Allowed.TEST./a/../b?c=%20d HTTP/1.1\r\nHost: allowed.test\r\nContent-Length: 4\r\n' +
        'Connection: close, X-Mine\r\nX-Mine: 1\r\nTE: trailers\r\nUpgrade: h2c\r\nProxy-Authorization: Basic x\r\n' +
        'Proxy-Connection: keep-alive\r\nKeep-Alive: 5\r\nX-Twice: 1\r\nX-Twice: 2\r\nExpect: 100-continue\r\n\r\nbody',
    );
    expect(answer).toMatch(/^HTTP\/1\.1 100 Continue\r\n\r\nHTTP\/1\.1 200 OK\r\n/);
    expect(answer).toMatch(/POST allowed\.test \/a\/\.\.\/b\?c=%20d body/);
    expect(answer).not.toMatch(/x-of-hop/);
    expect(answer).toMatch(/set-cookie: a=1\r\nset-cookie: b=2/);
    const names = world.asked[0]?.headers.filter((_, index) => index % 2 === 0).map((name) => name.toLowerCase());
    expect(names?.toSorted()).toEqual(['connection', 'content-length', 'host', 'via', 'x-twice', 'x-twice']);
    expect(world.connected).toEqual(['1.2.3.4 80']);
  });

  test.each([
    ['a name that is not listed', get('http://other.test/'), 403],
    ['a name that only begins like a listed one', get('http://allowed.test.evil.test/'), 403],
    ['a listed name in the user part of the URL', get('http://allowed.test@other.test/', 'other.test'), 400],
    ['another name in the user part of the URL', get('http://other.test@allowed.test/', 'allowed.test'), 400],
    ['a backslash in the host', get('http://allowed.test\\@other.test/', 'allowed.test'), 400],
    ['an encoded host', get('http://%61llowed.test/', 'allowed.test'), 400],
    ['an address', get('http://1.2.3.4/'), 403],
    ['loopback', get('http://127.0.0.1/'), 403],
    ['loopback as a number', get('http://2130706433/'), 403],
    ['loopback in hexadecimal', get('http://0x7f000001/'), 403],
    ['loopback in octal', get('http://0177.0.0.1/'), 403],
    ['loopback of IPv6', get('http://[::1]/'), 403],
    ['mapped loopback', get('http://[::ffff:127.0.0.1]/'), 403],
    ['localhost', get('http://localhost/'), 403],
    ['a port that is not listed', get('http://allowed.test:8080/'), 403],
    ['port 80 of a host that is listed with others', get('http://ported.test/'), 403],
    ['https without CONNECT', get('https://allowed.test/'), 400],
    ['plain HTTP for port 443', get('http://allowed.test:443/'), 403],
    ['ftp', get('ftp://allowed.test/'), 400],
    ['no host', get('http:///x', 'allowed.test'), 400],
    ['a path alone', 'GET / HTTP/1.1\r\nHost: allowed.test\r\n\r\n', 400],
    ['another Host header', get('http://allowed.test/', 'other.test'), 403],
    ['another port in the Host header', get('http://allowed.test/', 'allowed.test:8080'), 403],
    ['two Host headers', get('http://allowed.test/', 'allowed.test', 'Host: other.test\r\n'), 400],
    ['two Host headers in one', get('http://allowed.test/', 'allowed.test, other.test'), 403],
    ['no Host header', 'GET http://allowed.test/ HTTP/1.1\r\n\r\n', 400],
    ['a space before the colon of Host', 'GET http://allowed.test/ HTTP/1.1\r\nHost : other.test\r\n\r\n', 400],
  ])('a request with %s is refused, and nothing is connected or resolved', async (_, raw, status) => {
    const { world, ask } = await open();
    expect(Number((await ask(raw)).slice(9, 12))).toBe(status);
    expect([world.connected, world.resolved]).toEqual([[], []]);
  });

  const post = (headers: string, body: string): string =>
    `POST http://allowed.test/ HTTP/1.1\r\nHost: allowed.test\r\n${headers}\r\n${body}`;
  test.each([
    ['both lengths', post('Content-Length: 6\r\nTransfer-Encoding: chunked\r\n', '0\r\n\r\nX')],
    ['both lengths, the other way round', post('Transfer-Encoding: chunked\r\nContent-Length: 6\r\n', '0\r\n\r\nX')],
    ['two lengths', post('Content-Length: 1\r\nContent-Length: 6\r\n', '0\r\n\r\nX')],
    ['a length with a sign', post('Content-Length: +6\r\n', '0\r\n\r\nX')],
    ['an encoding of the body that hides its end', post('Transfer-Encoding: gzip, chunked\r\n', '0\r\n\r\nX')],
    [
      'an encoding that is named twice',
      post('Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n', '0\r\n\r\nX'),
    ],
    ['an unknown encoding', post('Transfer-Encoding: xchunked\r\n', '0\r\n\r\nX')],
    ['a folded encoding', post('X: y\r\n Transfer-Encoding: chunked\r\n', '0\r\n\r\nX')],
    ['a line break of another kind in a header', post('X: y\nTransfer-Encoding: chunked\r\n', '0\r\n\r\nX')],
  ])('a request with %s reaches no server', async (_, raw) => {
    const { world, ask } = await open();
    await world.serveWeb();
    expect(await ask(raw)).toMatch(/^HTTP\/1\.1 400 /);
    expect(world.asked).toEqual([]);
  });

  test('a body of unknown length is framed anew, with every method, so that no part of it is read as another request', async () => {
    const { world, ask } = await open();
    await world.serveWeb();
    const hidden = 'GET /hidden HTTP/1.1\r\nHost: other.test\r\n\r\n';
    for (const method of ['GET', 'DELETE', 'POST'])
      await ask(
        `${method} http://allowed.test/m HTTP/1.1\r\nHost: allowed.test\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n${hidden.length.toString(16)}\r\n${hidden}\r\n0\r\n\r\n`,
      );
    await ask(get('http://allowed.test/last'));
    expect(world.asked.map(({ host, url, body }) => [host, url, body])).toEqual([
      ...Array.from({ length: 3 }, () => ['allowed.test', '/m', hidden]),
      ['allowed.test', '/last', ''],
    ]);
  });

  test('a length that `Connection` names stays, so that no part of the body is read as another request', async () => {
    const { world, ask } = await open();
    await world.serveWeb();
    const hidden = 'GET /hidden HTTP/1.1\r\nHost: other.test\r\n\r\n';
    const headers = `Host: allowed.test\r\nContent-Length: ${hidden.length}\r\nConnection: close, content-length, host`;
    for (const method of ['GET', 'POST'])
      expect(await ask(`${method} http://allowed.test/m HTTP/1.1\r\n${headers}\r\n\r\n${hidden}`)).toMatch(/ 200 OK/);
    expect(world.asked.map(({ host, url, body }) => [host, url, body])).toEqual([
      ['allowed.test', '/m', hidden],
      ['allowed.test', '/m', hidden],
    ]);
  });

  test('each request of a connection is checked, also when it does not wait for the answer before', async () => {
    const { world, ask, proxy } = await open();
    await world.serveWeb();
    const one = (host: string): string => `GET http://${host}/ HTTP/1.1\r\nHost: ${host}\r\n\r\n`;
    const answer = await ask(
      `${one('allowed.test')}${one('a.allowed.test')}${one('other.test')}${one('allowed.test')}`,
    );
    expect(answer.match(/HTTP\/1\.1 \d+/g)).toEqual(['HTTP/1.1 200', 'HTTP/1.1 200', 'HTTP/1.1 403']);
    expect(world.asked.map(({ host }) => host).filter((host) => host === 'other.test')).toEqual([]);
    expect(faults(await proxy.close())).toContain('other.test:80 refused: it is not in the list of this sandbox');
  });

  test('a refusal says what was refused, what is allowed, and how to allow more', async () => {
    const { ask } = await open();
    const answer = await ask(get('http://other.test:81/x'));
    expect(answer).toMatch(/^HTTP\/1\.1 403 other\.test:81 was refused: it is not in the list of this sandbox\r\n/);
    expect(answer).toMatch(/This sandbox reaches allowed\.test, \*\.allowed\.test, .*`network: \[other\.test:81\]`/);
  });

  test('a server that cannot be reached, breaks off or answers nonsense gives 502 or a cut answer', async () => {
    const opened = await open();
    const { world, ask } = opened;
    expect(await ask(get('http://allowed.test/'))).toMatch(
      /^HTTP\/1\.1 502 .*it could not be reached \(ECONNREFUSED\)/,
    );
    expect(await ask(get('http://x.allowed.test/'))).toMatch(
      /^HTTP\/1\.1 502 .*the name servers have no address for it/,
    );
    const answers = [
      '',
      'nonsense\r\n\r\n',
      'HTTP/1.1 099 \x01\r\n\r\n',
      'HTTP/1.1 101 Switching\r\nUpgrade: x\r\n\r\n',
    ];
    await world.serveBytes(80, (socket) => socket.end(answers.shift() ?? ''));
    for (let left = answers.length; left > 0; left--)
      expect(await ask(get('http://allowed.test/'))).toMatch(/^(HTTP\/1\.1 502 |$|\(cut\))/);
    await world.serveBytes(80, (socket) => socket.end('HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\npart'));
    expect(await ask(get('http://allowed.test/'))).toMatch(/^(HTTP\/1\.1 200 OK[^]*part|\(cut\))$/);
    await world.serveWeb();
    expect(await ask(get('http://allowed.test/ok'))).toMatch(/GET allowed\.test \/ok/);
  });
});

describe('TLS', () => {
  test('a client with the name of the tunnel reaches the server', async () => {
    const opened = await open();
    await opened.world.serveWeb(certificate);
    expect(await askHttps(opened, 'allowed.test:443', 'allowed.test')).toBe('GET inside.tls /tls ');
    expect(await askHttps(opened, 'A.Allowed.test.:443', 'A.ALLOWED.test')).toBe('GET inside.tls /tls ');
    const rows = await opened.proxy.close();
    expect(faults(rows)).toEqual(['allowed.test:443 allowed', 'a.allowed.test:443 allowed']);
    expect(rows[0]).toMatchObject({ count: 1, sent: expect.any(Number), received: expect.any(Number) });
    expect(egressText(rows)).toMatch(/^allowed\.test:443 {3}allowed, 1 time, [\d,]+ bytes sent, [\d,]+ received\n/);
  });

  test.each([
    ['another name', 'other.test', 'refused: the TLS server name is other.test'],
    ['another listed name', 'a.allowed.test', 'refused: the TLS server name is a.allowed.test'],
    ['no name', undefined, 'refused: TLS without a server name'],
  ])('a client with %s gets an alert, and the server sees nothing of it', async (_, name, fault) => {
    const opened = await open();
    const received = await opened.world.serveBytes(443, () => {});
    expect(await askHttps(opened, 'allowed.test:443', name)).toBe('unrecognized name');
    expect(received).toEqual([]);
    expect(faults(await opened.proxy.close())).toEqual([`allowed.test:443 ${fault}`]);
  });

  test('a listed address has no server name', async () => {
    const opened = await open();
    await opened.world.serveWeb(certificate);
    expect(await askHttps(opened, '10.1.2.3:443', undefined)).toBe('GET inside.tls /tls ');
    expect(await askHttps(opened, '10.1.2.3:443', 'allowed.test')).toBe('unrecognized name');
    expect([...new Set(opened.world.connected)]).toEqual(['10.1.2.3 443']);
  });

  test('a ClientHello that comes in many packets is read, and one that comes with CONNECT too', async () => {
    const opened = await open();
    const received = await opened.world.serveBytes(443, (socket) => socket.end('answer'));
    const hello = await clientHello('allowed.test');
    const slow = await tunnel(opened, 'allowed.test:443');
    const answer = text(slow);
    for (let at = 0; at < hello.length; at += 20) {
      slow.write(hello.subarray(at, at + 20));
      await sleep(1);
    }
    expect(await answer).toBe('answer');
    const eager = Buffer.concat([Buffer.from('CONNECT allowed.test:443 HTTP/1.1\r\n\r\n'), hello]);
    expect(await opened.ask(eager)).toBe(`${CONNECTED}answer`);
    expect(Buffer.concat(received)).toEqual(Buffer.concat([hello, hello]));
    const wrong = Buffer.concat([
      Buffer.from('CONNECT allowed.test:443 HTTP/1.1\r\n\r\n'),
      await clientHello('other.test'),
    ]);
    expect(await opened.ask(wrong)).toBe(`${CONNECTED}\x15\x03\x03\0\x02\x02p`);
    expect(received).toHaveLength(2);
  });

  test('a second ClientHello, for which the server asks, must have the same name', async () => {
    const opened = await open();
    const retry = Buffer.from(RETRY, 'hex');
    const received = await opened.world.serveBytes(443, (socket) => socket.write(retry));
    for (const second of ['allowed.test', 'other.test']) {
      received.length = 0;
      const socket = await tunnel(opened, 'allowed.test:443');
      socket.write(await clientHello('allowed.test'));
      expect((await once(socket, 'data'))[0]).toEqual(retry);
      const hello = await clientHello(second);
      socket.write(Buffer.concat([Buffer.from([20, 3, 3, 0, 1, 1]), hello]));
      const [answer]: Buffer[] = await once(socket, 'data');
      const isPassed = Buffer.concat(received).includes(hello);
      expect([second, answer?.[0] === 21, isPassed]).toEqual([
        second,
        second !== 'allowed.test',
        second === 'allowed.test',
      ]);
      socket.destroy();
    }
  });

  test('a second ClientHello that comes with the first is not passed on before the server asks for it, and is checked then', async () => {
    const opened = await open();
    // A server may send a warning before.
    const retry = Buffer.from(`15030300020170${RETRY}`, 'hex');
    const received = await opened.world.serveBytes(443, (socket) => socket.write(retry));
    const [first, second] = [await clientHello('allowed.test'), await clientHello('other.test')];
    const socket = await tunnel(opened, 'allowed.test:443');
    socket.write(Buffer.concat([first, second]));
    expect(await text(socket)).toContain('\x15\x03\x03\0\x02\x02p');
    expect(Buffer.concat(received)).toEqual(first);
    expect(faults(await opened.proxy.close())).toEqual(['allowed.test:443 refused: the TLS server name is other.test']);
  });

  test('a second ClientHello that is never complete is not passed on', async () => {
    const opened = await open({ limits: { idleMs: 400 } });
    const retry = Buffer.from(RETRY, 'hex');
    const received = await opened.world.serveBytes(443, (socket) => socket.write(retry));
    const [first, second] = [await clientHello('allowed.test'), await clientHello('other.test')];
    const socket = await tunnel(opened, 'allowed.test:443');
    socket.write(first);
    await once(socket, 'data');
    // Each byte begins the idle time anew.
    for (const byte of second.subarray(0, 8)) {
      socket.write(Buffer.from([byte]));
      await sleep(80);
    }
    socket.write(second.subarray(8));
    await text(socket).catch(() => '');
    expect(Buffer.concat(received)).toEqual(first);
  });

  test.each([
    ['HTTP', 'GET / HTTP/1.1\r\nHost: other.test\r\n\r\n'],
    ['DNS', Buffer.from('001d00010100000100000000000005other04test00000100', 'latin1')],
    ['SSH', 'SSH-2.0-client\r\n'],
    ['a torn ClientHello', Buffer.from([22, 3, 1, 0, 4, 1, 0, 0, 0])],
  ])('a tunnel to port 443 with %s in it is closed, and the server sees nothing of it', async (_, bytes) => {
    const opened = await open();
    const received = await opened.world.serveBytes(443, () => {});
    const socket = await tunnel(opened, 'allowed.test:443');
    socket.write(bytes);
    expect(Buffer.from(await text(socket), 'latin1')[0]).toBe(21);
    expect(received).toEqual([]);
  });
});

/** The beginning of a server's answer that asks for another ClientHello. */
const RETRY = '1603030026020000220303cf21ad74e59a6111be1d8c021e65b891c2a211167abb8c5e079e09e2c8a8339c';

/** Returns the first bytes of a real TLS client. */
async function clientHello(servername: string): Promise<Buffer> {
  const sent = Promise.withResolvers<Buffer>();
  const wire = new Duplex({ read: () => {}, write: (chunk: Buffer, _, done) => (sent.resolve(chunk), done()) });
  const client = connectTls({ servername, socket: wire }).on('error', () => {});
  const bytes = await sent.promise;
  client.destroy();
  return bytes;
}

describe('tunnels', () => {
  test.each([
    ['a name that is not listed', 'other.test:443', 403],
    ['an address', '1.2.3.4:443', 403],
    ['the gateway', '127.0.0.1:8700', 403],
    ['PostgreSQL', 'localhost:5432', 403],
    ['the machine’s own name servers', '127.0.0.53:53', 403],
    ['the metadata of a cloud', '169.254.169.254:80', 403],
    ['another port of a listed name', 'allowed.test:22', 403],
    ['a name without a port', 'allowed.test', 400],
    ['port 0', 'allowed.test:0', 400],
    ['a port above all', 'allowed.test:65979', 400],
    ['a URL', 'http://allowed.test:443/', 400],
    ['a user part', 'other.test@allowed.test:443', 400],
    ['two ports', 'other.test:443:443', 400],
  ])('CONNECT to %s is refused, and nothing is connected or resolved', async (_, authority, status) => {
    const { world, ask } = await open();
    expect((await ask(`CONNECT ${authority} HTTP/1.1\r\nHost: allowed.test:443\r\n\r\n`)).slice(9, 12)).toBe(
      String(status),
    );
    expect([world.connected, world.resolved]).toEqual([[], []]);
  });

  test('a tunnel to port 80 carries requests of HTTP to its host, and each is checked', async () => {
    const opened = await open();
    await opened.world.serveWeb();
    const socket = await tunnel(opened, 'allowed.test:80');
    socket.write(
      'GET /one HTTP/1.1\r\nHost: allowed.test\r\n\r\nGET /two HTTP/1.1\r\nHost: other.test\r\n\r\nGET /three HTTP/1.1\r\nHost: allowed.test\r\n\r\n',
    );
    expect((await text(socket)).match(/HTTP\/1\.1 \d+/g)).toEqual(['HTTP/1.1 200', 'HTTP/1.1 403']);
    const absolute = await tunnel(opened, 'allowed.test:80');
    absolute.write(get('http://other.test/'));
    expect(await text(absolute)).toMatch(/^HTTP\/1\.1 400 /);
    const tls = await tunnel(opened, 'allowed.test:80');
    tls.write(await clientHello('allowed.test'));
    expect(await text(tls)).toMatch(/^HTTP\/1\.1 400 /);
    expect(opened.world.asked.filter(({ host }) => host !== 'allowed.test')).toEqual([]);
  });

  test('CONNECT in a tunnel is refused, so that one connection has one tunnel', async () => {
    const opened = await open();
    await opened.world.serveWeb();
    for (const authority of ['allowed.test:80', 'allowed.test:443']) {
      const socket = await tunnel(opened, 'allowed.test:80');
      socket.write(`CONNECT ${authority} HTTP/1.1\r\nHost: ${authority}\r\n\r\n`);
      expect(await text(socket)).toMatch(/^HTTP\/1\.1 400 .*this connection is a tunnel already/);
    }
    expect(opened.world.connected).toEqual([]);
  });

  test('a port that the list names carries any protocol, and TLS to it still needs the right name', async () => {
    const opened = await open();
    await opened.world.serveBytes(8022, (socket, bytes) => socket.end(`you said ${String(bytes)}`));
    const quiet = await tunnel(opened, 'ported.test:8022');
    quiet.write('hello');
    expect(await text(quiet)).toBe('you said hello');
    const received = await opened.world.serveBytes(8443, () => {});
    expect(await askHttps(opened, 'ported.test:8443', 'other.test')).toBe('unrecognized name');
    expect(received).toEqual([]);
  });

  test('through a port that the list names a server may speak first', async () => {
    const opened = await open();
    await opened.world.serve(
      8022,
      createServer((socket) => {
        socket.write('SSH-2.0-server\r\n');
        socket.once('data', (bytes) => socket.end(bytes));
      }),
    );
    const socket = opened.dial();
    socket.write('CONNECT ported.test:8022 HTTP/1.1\r\n\r\n');
    let heard = '';
    for await (const bytes of socket) {
      heard += String(bytes);
      if (heard.endsWith('server\r\n')) socket.write('SSH-2.0-client\r\n');
    }
    expect(heard).toBe(`${CONNECTED}SSH-2.0-server\r\nSSH-2.0-client\r\n`);
  });
});

describe('names', () => {
  test.each([
    ['loopback', '127.0.0.1'],
    ['mapped loopback', '::ffff:127.0.0.1'],
    ['loopback of IPv6', '::1'],
    ['the metadata of a cloud', '169.254.169.254'],
    ['a private network', '10.1.2.3'],
    ['a private network of IPv6', 'fd00::1'],
    ['multicast', '224.0.0.1'],
    ['what is no address', 'allowed.test'],
  ])('a listed name that leads to %s is not reached', async (_, address) => {
    const { world, ask } = await open();
    world.names.set('allowed.test', [address]);
    const status = address === 'allowed.test' ? 502 : 403;
    expect((await ask(get('http://allowed.test/'))).slice(9, 12)).toBe(String(status));
    expect((await ask('CONNECT allowed.test:443 HTTP/1.1\r\n\r\n')).slice(9, 12)).toBe(String(status));
    expect(world.connected).toEqual([]);
  });

  test('a name that is public at first and private later is connected to the address that was checked', async () => {
    const { world, ask } = await open();
    await world.serveWeb();
    const answers = [['1.2.3.4'], ['127.0.0.1'], ['1.2.3.4', '127.0.0.1']];
    world.names.set('allowed.test', () => answers.shift() ?? []);
    expect(await ask(get('http://allowed.test/'))).toMatch(/ 200 OK/);
    expect(await ask(get('http://allowed.test/'))).toMatch(/ 403 .*leads to 127\.0\.0\.1/);
    expect(await ask(get('http://allowed.test/'))).toMatch(/ 200 OK/);
    expect([world.connected, world.resolved]).toEqual([
      ['1.2.3.4 80', '1.2.3.4 80'],
      ['allowed.test', 'allowed.test', 'allowed.test'],
    ]);
  });

  test('a name in another script is another name', async () => {
    const { world, ask } = await open({ hosts: ['bücher.example'] });
    world.name('xn--bcher-kva.example');
    await world.serveWeb();
    expect(await ask(get('http://xn--bcher-kva.example/'))).toMatch(/ 200 OK/);
    // This host has a Cyrillic letter for the u.
    expect(await ask(get('http://xn--bcher-5ug.example/', 'xn--bcher-5ug.example'))).toMatch(/ 40[03] /);
    expect(world.resolved).toEqual(['xn--bcher-kva.example']);
  });
});

describe('limits', () => {
  test('of 500 connections at once all are answered, and nothing stays open', async () => {
    const opened = await open();
    await opened.world.serveWeb();
    const answers = await Promise.all(Array.from({ length: 500 }, () => opened.ask(get('http://allowed.test/'))));
    expect(new Set(answers.map((answer) => answer.slice(9, 12)))).toEqual(new Set(['200']));
    await opened.proxy.close();
    expect(opened.world.open).toBe(0);
  });

  test('connections above the limit are closed, and requests that would open more to other hosts are refused', async () => {
    const opened = await open({ limits: { inside: 3, outside: 2 } });
    await opened.world.serveBytes(443, () => {});
    const held = [await tunnel(opened, 'allowed.test:443'), await tunnel(opened, 'allowed.test:443')];
    expect(await opened.ask(get('http://allowed.test/'))).toMatch(/^HTTP\/1\.1 503 .*more than 2 connections at once/);
    const third = opened.dial();
    const fourth = opened.dial();
    expect(await text(fourth)).toBe('');
    for (const socket of [...held, third]) socket.destroy();
    await until(() => opened.world.open === 0);
  });

  test('headers and a ClientHello that do not come in time end the connection', async () => {
    const opened = await open({ limits: { beginMs: 300 } });
    await opened.world.serveBytes(443, () => {});
    const slow = opened.dial();
    slow.write('GET http://allowed.test/ HTTP/1.1\r\nHost: ');
    expect(await text(slow)).toMatch(/^HTTP\/1\.1 408 /);
    const silent = await tunnel(opened, 'allowed.test:443');
    expect(Buffer.from(await text(silent), 'latin1')[0]).toBe(21);
    await until(() => opened.world.open === 0);
  });

  test('headers of more than 16 KiB are refused', async () => {
    const { ask } = await open();
    expect(await ask(get('http://allowed.test/', 'allowed.test', `X: ${'x'.repeat(17_000)}\r\n`))).toMatch(/ 431 /);
  });

  test('a server that sends alerts without end instead of an answer is cut off', async () => {
    const opened = await open();
    const alerts = Buffer.concat(Array.from({ length: 1000 }, () => Buffer.from([21, 3, 3, 0, 2, 1, 112])));
    await opened.world.serve(
      443,
      createServer((socket) => {
        const send = (): void => void (socket.destroyed || socket.write(alerts, () => setImmediate(send)));
        socket.once('data', send);
      }),
    );
    const socket = await tunnel(opened, 'allowed.test:443');
    socket.write(await clientHello('allowed.test'));
    expect(await text(socket)).toBe('\x15\x03\x03\0\x02\x02p');
    await until(() => opened.world.open === 0);
    expect(faults(await opened.proxy.close())).toEqual([
      'allowed.test:443 refused: the server does not begin as a TLS server does',
    ]);
  });

  test('a client that leaves while its server is being connected leaves no connection to it', async () => {
    const world = new OutsideWorld().name('allowed.test');
    const resolved = Promise.withResolvers<string[]>();
    const opened = await open({ outside: { ...world.outside, resolve: () => resolved.promise } });
    await world.serveBytes(80, () => {});
    await world.serveBytes(443, () => {});
    for (const raw of [get('http://allowed.test/'), 'CONNECT allowed.test:443 HTTP/1.1\r\n\r\n']) {
      const socket = opened.dial();
      socket.write(raw);
      await sleep(100);
      socket.destroy();
    }
    await sleep(100);
    resolved.resolve(['1.2.3.4']);
    await until(() => world.connected.length === 2 && world.open === 0);
  });

  test('a silent connection is closed after its idle time', async () => {
    const opened = await open({ limits: { idleMs: 200 } });
    await opened.world.serveBytes(443, () => {});
    const socket = await tunnel(opened, 'allowed.test:443');
    socket.write(await clientHello('allowed.test'));
    await text(socket).catch(() => '');
    await until(() => opened.world.open === 0);
  });

  test('a sandbox that asks for ever new names does not grow the log', async () => {
    const { ask, proxy } = await open();
    for (let index = 0; index < 130; index++) await ask(get(`http://n${index}.test/`));
    const rows = await proxy.close();
    expect(rows).toHaveLength(101);
    expect(egressText(rows).split('\n').at(-2)).toBe('others   refused or failed, 30 times');
  });
});

test('a tunnel passes 20 MB whole in both directions, and half of it may end before the other', async () => {
  const opened = await open();
  await opened.world.serve(
    8022,
    createServer({ allowHalfOpen: true }, (socket) => void socket.pipe(socket)),
  );
  const socket = await tunnel(opened, 'ported.test:8022');
  const sent = Buffer.alloc(20_000_000, 'abcdefg');
  socket.end(sent);
  expect((await text(socket)) === String(sent)).toBe(true);
  const [row] = await opened.proxy.close();
  expect(row).toMatchObject({ sent: 20_000_000, received: 20_000_000 });
});

test('a proxy that is closed ends all connections and leaves no socket', async () => {
  const opened = await open();
  await opened.world.serveBytes(443, () => {});
  const socket = await tunnel(opened, 'allowed.test:443');
  expect(statSync(opened.proxy.socket).mode & 0o777).toBe(0o666);
  expect(faults(await opened.proxy.close())).toEqual(['allowed.test:443 allowed']);
  await text(socket).catch(() => '');
  expect([opened.world.open, readdirSync(join(opened.proxy.socket, '..'))]).toEqual([0, []]);
});
