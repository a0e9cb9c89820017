import { Duplex } from 'node:stream';
import { connect, type ConnectionOptions } from 'node:tls';
import { expect, test } from 'vitest';
import { asksForAnother, readBeginning } from './client-hello.ts';

/** Returns the bytes that a real client sends first. */
async function helloOf(options: ConnectionOptions): Promise<Buffer> {
  const sent = Promise.withResolvers<Buffer>();
  const wire = new Duplex({ read: () => {}, write: (chunk: Buffer, _, done) => (sent.resolve(chunk), done()) });
  const client = connect({ ...options, socket: wire });
  client.on('error', () => {});
  const bytes = await sent.promise;
  client.destroy();
  return bytes;
}

const hello = (serverName: string | null) => ({
  kind: 'hello',
  serverName,
  hasEncryptedName: false,
  length: expect.any(Number),
});
/** Makes one record, or several of `size` bytes each. */
function records(content: Buffer, size = 16_384): Buffer {
  const parts = [];
  for (let at = 0; at < content.length; at += size) {
    const part = content.subarray(at, at + size);
    parts.push(Buffer.from([22, 3, 1, part.length >> 8, part.length & 255]), part);
  }
  return Buffer.concat(parts);
}
const u16 = (value: number): Buffer => Buffer.from([value >> 8, value & 255]);
const sized = (content: Buffer): Buffer => Buffer.concat([u16(content.length), content]);
const extension = (type: number, content: Buffer): Buffer => Buffer.concat([u16(type), sized(content)]);
const serverName = (name: string | Buffer, type = 0): Buffer =>
  extension(0, sized(Buffer.concat([Buffer.from([type]), sized(Buffer.from(name))])));
/** Makes the message of a ClientHello. */
function message(...extensions: Buffer[]): Buffer {
  const body = Buffer.concat([
    ...[Buffer.from([3, 3]), Buffer.alloc(32), Buffer.from([0]), sized(u16(0x1301)), Buffer.from([1, 0])],
    sized(Buffer.concat(extensions)),
  ]);
  return Buffer.concat([Buffer.from([1, 0]), sized(body)]);
}

test.each<[string, ConnectionOptions, string | null]>([
  ['the newest TLS', { servername: 'allowed.test' }, 'allowed.test'],
  ['TLS 1.2', { servername: 'allowed.test', maxVersion: 'TLSv1.2' }, 'allowed.test'],
  ['no name', {}, null],
  ['an upper-case name', { servername: 'ALLOWED.test' }, 'ALLOWED.test'],
  ['ALPN', { servername: 'allowed.test', ALPNProtocols: ['h2', 'http/1.1'] }, 'allowed.test'],
])('the server name of a real ClientHello with %s is read, however it is cut', async (_, options, name) => {
  const bytes = await helloOf(options);
  expect(readBeginning(bytes)).toEqual({ ...hello(name), length: bytes.length });
  expect(readBeginning(Buffer.concat([bytes, bytes]))).toMatchObject({ length: bytes.length });
  for (let end = 0; end < bytes.length; end++) expect(readBeginning(bytes.subarray(0, end)).kind).toBe('incomplete');
  expect(readBeginning(records(bytes.subarray(5), Math.ceil(bytes.length / 15)))).toEqual(hello(name));
});

test('a server name behind 9,000 bytes of other extensions is read', () => {
  const long = records(message(extension(51, Buffer.alloc(9000)), serverName('late.test')));
  expect(readBeginning(long)).toEqual(hello('late.test'));
});

test('a name that the server reads instead of another, encrypted, is noticed', () => {
  for (const type of [0xfe0d, 0xffce])
    expect(readBeginning(records(message(serverName('a.test'), extension(type, Buffer.alloc(40)))))).toMatchObject({
      serverName: 'a.test',
      hasEncryptedName: true,
    });
});

test.each([
  ['two server names', message(serverName('a.test'), serverName('b.test'))],
  ['an extension that comes twice', message(extension(10, u16(0)), extension(10, u16(0)))],
  ['a list of two names', message(extension(0, sized(Buffer.from('\0\0\x01a\0\0\x01b', 'latin1'))))],
  ['bytes behind the list of names', message(extension(0, Buffer.concat([sized(Buffer.from('\0\0\x01a')), u16(0)])))],
  ['a name of an unknown type', message(serverName('a.test', 1))],
  ['an empty name', message(serverName(''))],
  ['a name with a zero byte', message(serverName('a.test\0.b.test'))],
  // Without its highest bit this letter is an `a`.
  ['a name with a letter above ASCII', message(serverName(Buffer.from('\xe1.test', 'latin1')))],
  ['a name with a space', message(serverName('a.test b'))],
  ['a part that is longer than the whole', Buffer.from([1, 0, 0, 4, 3, 3, 0, 0])],
  ['bytes behind its end', Buffer.concat([message(serverName('a.test')), Buffer.from([0])])],
  ['another message in its place', Buffer.concat([Buffer.from([2]), message(serverName('a.test')).subarray(1)])],
  ['an enormous length', Buffer.from([1, 255, 255, 255, 0, 0, 0, 0])],
])('a ClientHello with %s is malformed', (_, bytes) => {
  expect(readBeginning(records(bytes))).toEqual({ kind: 'malformed' });
});

test.each([
  ['a request of HTTP', Buffer.from('GET / HTTP/1.1\r\n')],
  ['SSH', Buffer.from('SSH-2.0-x\r\n')],
  ['a hello of SSL 2', Buffer.from([0x80, 0x2e, 1, 3, 1])],
  ['a byte that TLS would have too, and no version', Buffer.from([22, 9, 9])],
])('%s is not TLS', (_, bytes) => {
  expect(readBeginning(bytes)).toEqual({ kind: 'other' });
});

test('a ClientHello that never ends is malformed after 16 KiB, or 16 records', () => {
  const endless = records(Buffer.concat([Buffer.from([1, 0, 63, 252]), Buffer.alloc(16_380)]), 2000);
  expect(readBeginning(endless.subarray(0, 16_000)).kind).toBe('incomplete');
  expect(readBeginning(endless.subarray(0, 16_384)).kind).toBe('malformed');
  const parts = records(message(serverName('allowed.test')), 4);
  expect(readBeginning(parts.subarray(0, 15 * 9)).kind).toBe('incomplete');
  expect(readBeginning(parts).kind).toBe('malformed');
});

test('random changes of a ClientHello cause no error', () => {
  const bytes = records(message(serverName('allowed.test'), extension(51, Buffer.alloc(60))));
  let seed = 1;
  const next = (below: number): number => (seed = (seed * 48_271) % 0x7fffffff) % below;
  for (let round = 0; round < 3000; round++) {
    const changed = Buffer.from(bytes);
    for (let change = 0; change <= next(3); change++) changed[next(changed.length)] = next(256);
    expect(['incomplete', 'other', 'malformed', 'hello']).toContain(readBeginning(changed).kind);
  }
});

test('a second ClientHello is read behind what may come before it, and a first one is not', () => {
  const second = Buffer.concat([Buffer.from([20, 3, 3, 0, 1, 1]), records(message(serverName('b.test')))]);
  expect(readBeginning(second, { isSecond: true })).toEqual(hello('b.test'));
  expect(readBeginning(second).kind).toBe('other');
});

test('only a ServerHello that asks for another ClientHello is taken for one', () => {
  const random = 'cf21ad74e59a6111be1d8c021e65b891c2a211167abb8c5e079e09e2c8a8339c';
  const retry = Buffer.from(`160303002602000022 0303${random}`.replaceAll(' ', ''), 'hex');
  expect(asksForAnother(retry)).toBe(true);
  const warning = Buffer.from([21, 3, 3, 0, 2, 1, 112]);
  expect(asksForAnother(Buffer.concat([warning, retry]))).toBe(true);
  expect(asksForAnother(warning)).toBeNull();
  expect(asksForAnother(Buffer.concat([warning, Buffer.from([23])]))).toBe(false);
  expect(asksForAnother(Buffer.concat([retry, Buffer.alloc(9)]))).toBe(true);
  expect(asksForAnother(retry.subarray(0, 20))).toBeNull();
  expect(asksForAnother(Buffer.concat([retry.subarray(0, 30), Buffer.alloc(20)]))).toBe(false);
  expect(asksForAnother(Buffer.from([23, 3, 3]))).toBe(false);
});
