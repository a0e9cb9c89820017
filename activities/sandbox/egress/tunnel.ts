import type { Socket } from 'node:net';
import { isAddress } from '../../../core/host-rules.ts';
import { asksForAnother, readBeginning, type Beginning } from './client-hello.ts';
import { Refusal } from './refusal.ts';

/** The most bytes of a server that are kept until they tell whether it asks for another ClientHello. */
const MAX_REPLY = 65_536;

/** The first bytes of a tunnel, as many as tell what they are. */
export type First = { bytes: Buffer; beginning: Beginning };

/**
 * Reads the first bytes of a tunnel. Returns null when `outside` sends first; the tunnel is then not for TLS.
 * @throws Refusal when it ends before, or is not complete in time
 */
export async function readFirst(
  inside: Socket,
  ms: number,
  { isSecond = false, unless }: { isSecond?: boolean; unless?: Socket } = {},
): Promise<First | null> {
  const decide = (bytes: Buffer): First | null => {
    const beginning = readBeginning(bytes, { isSecond });
    return beginning.kind === 'incomplete' ? null : { bytes, beginning };
  };
  const first = await read(inside, ms, decide, unless);
  if (first === 'ended') throw new Refusal('forbidden', 'nothing came through the tunnel, or not in time');
  return first === 'other' ? null : first;
}

/**
 * Passes a ClientHello on that asks for this host, and the server's answer. A server may ask for another ClientHello, whose name then counts,
 * so that is checked too. Returns false when the server ended the connection.
 * @throws Refusal when the ClientHello does not ask for this host alone, or the server's answer is not one of TLS
 */
export async function passHello(
  first: First,
  { inside, outside, host, ms }: { inside: Socket; outside: Socket; host: string; ms: number },
): Promise<boolean> {
  passOne(first, { inside, outside, host });
  const reply = await read(outside, ms, (bytes) => {
    const isAnother = asksForAnother(bytes);
    return isAnother === null && bytes.length <= MAX_REPLY ? null : { bytes, isAnother };
  });
  if (typeof reply === 'string') return false;
  if (reply.isAnother === null) throw new Refusal('forbidden', 'the server does not begin as a TLS server does');
  inside.write(reply.bytes);
  if (!reply.isAnother) return true;
  const second = await readFirst(inside, ms, { isSecond: true });
  if (second) passOne(second, { inside, outside, host });
  return true;
}

/** Passes one checked ClientHello on, and nothing that follows it: the server could take that for the next one. */
function passOne(
  { bytes, beginning }: First,
  { inside, outside, host }: { inside: Socket; outside: Socket; host: string },
): void {
  if (beginning.kind !== 'hello') throw new Refusal('forbidden', 'its TLS ClientHello cannot be read');
  if (beginning.hasEncryptedName)
    throw new Refusal('forbidden', 'the TLS server name may be another (Encrypted Client Hello): turn that off');
  const name = beginning.serverName?.toLowerCase().replace(/\.$/, '') ?? null;
  // There are no server names for addresses.
  if (name !== (isAddress(host) ? null : host))
    throw new Refusal('forbidden', name === null ? 'TLS without a server name' : `the TLS server name is ${name}`);
  outside.write(bytes.subarray(0, beginning.length));
  if (bytes.length > beginning.length) inside.unshift(bytes.subarray(beginning.length));
}

/** Copies both directions until both have ended. */
export function join(inside: Socket, outside: Socket): void {
  outside.once('close', () => inside.destroySoon());
  inside.pipe(outside).pipe(inside);
}

/**
 * Reads from a socket until `decide` returns something. Then nothing more is read. Returns `ended` when the socket has ended or the time is
 * over, and `other` when there is something to read from `unless` and nothing from the socket.
 */
function read<T extends object>(
  socket: Socket,
  ms: number,
  decide: (bytes: Buffer) => T | null,
  unless?: Socket,
): Promise<T | 'ended' | 'other'> {
  return new Promise((resolve) => {
    let bytes = Buffer.alloc(0);
    const settle = (result: T | 'ended' | 'other'): void => {
      clearTimeout(timer);
      socket.off('data', onData).off('end', onEnd).off('close', onEnd);
      unless?.off('readable', onOther);
      socket.pause();
      resolve(result);
    };
    const onData = (data: Buffer): void => {
      bytes = Buffer.concat([bytes, data]);
      const result = decide(bytes);
      if (result !== null) settle(result);
    };
    const onEnd = (): void => settle('ended');
    const onOther = (): void => settle(bytes.length === 0 ? 'other' : 'ended');
    const timer = setTimeout(onEnd, ms);
    unless?.once('readable', onOther);
    socket.on('data', onData).on('end', onEnd).on('close', onEnd);
    if (socket.destroyed || socket.readableEnded) onEnd();
    else socket.resume();
  });
}
