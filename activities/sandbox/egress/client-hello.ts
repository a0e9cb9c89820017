/**
 * What the first bytes of a connection are. `incomplete`: more of them are needed. `other`: they are not TLS. `malformed`: they are TLS that
 * no server should accept, or that is read differently by different servers.
 */
export type Beginning =
  | { kind: 'incomplete' | 'other' | 'malformed' }
  /**
   * `serverName` is null when there is none. `hasEncryptedName`: the server may be told another name that nobody else can read. `length`:
   * the number of bytes that it took.
   */
  | { kind: 'hello'; serverName: string | null; hasEncryptedName: boolean; length: number };

/** The most bytes of a ClientHello. With keys against quantum computers it has about 2,000. */
const MAX_HELLO = 16_384;
/** The most records of a ClientHello. Clients send one. */
const MAX_RECORDS = 16;

// These numbers are those of RFC 8446, RFC 6066 and RFC 9849.
const CHANGE_CIPHER_SPEC = 20;
const ALERT = 21;
const HANDSHAKE = 22;
const APPLICATION_DATA = 23;
const CLIENT_HELLO = 1;
const SERVER_HELLO = 2;
const SERVER_NAME = 0;
const HOST_NAME = 0;
const ENCRYPTED_NAMES = [0xfe0d, 0xffce];
const RECORD_HEADER = 5;
const MESSAGE_HEADER = 4;
const VERSION_AND_RANDOM = 34;
/** The `random` of a ServerHello that asks for another ClientHello. */
const RETRY = Buffer.from('cf21ad74e59a6111be1d8c021e65b891c2a211167abb8c5e079e09e2c8a8339c', 'hex');

/** Reads a TLS ClientHello. It is strict: a name that servers could read in two ways must not pass. `isSecond`: it follows a server's request for another one. */
export function readBeginning(bytes: Buffer, { isSecond = false } = {}): Beginning {
  const found = readMessage(bytes, isSecond ? [CHANGE_CIPHER_SPEC, APPLICATION_DATA] : []);
  if (!('message' in found)) return found;
  if (found.message[0] !== CLIENT_HELLO) return { kind: 'malformed' };
  try {
    const { message, length } = found;
    return { kind: 'hello', ...readHello(new Cursor(message.subarray(MESSAGE_HEADER))), length };
  } catch (error) {
    if (error instanceof RangeError) return { kind: 'malformed' };
    throw error;
  }
}

/** Returns true when the first bytes of a server ask for another ClientHello, false when not, and null when more bytes are needed. */
export function asksForAnother(bytes: Buffer): boolean | null {
  let at = 0;
  while ([CHANGE_CIPHER_SPEC, ALERT].includes(bytes[at] ?? 0) && bytes.length >= at + RECORD_HEADER)
    at += RECORD_HEADER + bytes.readUInt16BE(at + 3);
  const reply = bytes.subarray(at);
  const end = RECORD_HEADER + MESSAGE_HEADER + VERSION_AND_RANDOM;
  if (reply.length > 0 && ![HANDSHAKE, CHANGE_CIPHER_SPEC, ALERT].includes(reply[0] ?? 0)) return false;
  if (reply.length > RECORD_HEADER && reply[RECORD_HEADER] !== SERVER_HELLO) return false;
  if (reply.length < end) return null;
  return reply.subarray(end - RETRY.length, end).equals(RETRY);
}

/** Joins the records of the first handshake message. Records of the types in `skipped` before it are left out. */
function readMessage(
  bytes: Buffer,
  skipped: readonly number[],
): { message: Buffer; length: number } | { kind: 'incomplete' | 'other' | 'malformed' } {
  const parts: Buffer[] = [];
  let at = 0;
  while (at < bytes.length) {
    const type = bytes[at] ?? 0;
    const isSkipped = parts.length === 0 && skipped.includes(type);
    const notTls = { kind: at === 0 ? 'other' : 'malformed' } as const;
    if (type !== HANDSHAKE && !isSkipped) return notTls;
    if (at + 1 < bytes.length && bytes[at + 1] !== 3) return notTls;
    if (bytes.length < at + RECORD_HEADER) break;
    const length = bytes.readUInt16BE(at + 3);
    if (length === 0 || length > MAX_HELLO || parts.length === MAX_RECORDS) return { kind: 'malformed' };
    const end = at + RECORD_HEADER + length;
    if (end > bytes.length) break;
    if (!isSkipped) parts.push(bytes.subarray(at + RECORD_HEADER, end));
    at = end;
    const message = Buffer.concat(parts);
    if (message.length < MESSAGE_HEADER) continue;
    const total = MESSAGE_HEADER + message.readUIntBE(1, 3);
    // A record holds nothing behind a ClientHello.
    if (total > MAX_HELLO || message.length > total) return { kind: 'malformed' };
    if (message.length === total) return { message, length: at };
  }
  return { kind: bytes.length < MAX_HELLO ? 'incomplete' : 'malformed' };
}

function readHello(hello: Cursor): { serverName: string | null; hasEncryptedName: boolean } {
  hello.take(VERSION_AND_RANDOM);
  hello.take(hello.number(1));
  hello.take(hello.number(2));
  hello.take(hello.number(1));
  // A hello without extensions is that of an old client.
  const extensions = hello.isAtEnd ? hello : new Cursor(hello.take(hello.number(2)));
  hello.requireEnd();
  let serverName: string | null = null;
  let hasEncryptedName = false;
  const seen = new Set<number>();
  while (!extensions.isAtEnd) {
    const type = extensions.number(2);
    const content = extensions.take(extensions.number(2));
    if (seen.has(type)) throw new RangeError('an extension comes twice');
    seen.add(type);
    if (type === SERVER_NAME) serverName = readServerName(new Cursor(content));
    if (ENCRYPTED_NAMES.includes(type)) hasEncryptedName = true;
  }
  return { serverName, hasEncryptedName };
}

function readServerName(content: Cursor): string {
  const list = new Cursor(content.take(content.number(2)));
  content.requireEnd();
  if (list.number(1) !== HOST_NAME) throw new RangeError('the first server name is no host name');
  const name = list.take(list.number(2)).toString('latin1');
  list.requireEnd();
  if (!/^[\w.-]{1,255}$/.test(name)) throw new RangeError('the server name is no host name');
  return name;
}

/** Reads numbers and parts of a buffer, and throws a RangeError beyond its end. */
class Cursor {
  readonly #bytes: Buffer;
  #at = 0;

  constructor(bytes: Buffer) {
    this.#bytes = bytes;
  }

  get isAtEnd(): boolean {
    return this.#at === this.#bytes.length;
  }

  number(size: number): number {
    return this.take(size).readUIntBE(0, size);
  }

  take(size: number): Buffer {
    const end = this.#at + size;
    if (end > this.#bytes.length) throw new RangeError('a part is longer than the whole');
    const part = this.#bytes.subarray(this.#at, end);
    this.#at = end;
    return part;
  }

  requireEnd(): void {
    if (!this.isAtEnd) throw new RangeError('something follows the end');
  }
}
