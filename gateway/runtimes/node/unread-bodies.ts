import { STATUS_CODES, type IncomingMessage } from 'node:http';
import type { Socket } from 'node:net';

/** A rest of at most this many bytes is read and thrown away at once, so that its connection can be used again. */
const CHEAP_BYTES = 2 ** 20;
/** How much of a rest is read, and how long its connection stays open, for clients that read a reply only after they have sent everything. */
const MOST_BYTES = 8 * 2 ** 20;
const LINGER_MS = 2_000;
/**
 * Each time, one part of about 64 KiB is read from one connection, which takes about 1 % of the event loop's time however many connections
 * linger.
 */
const READ_EVERY_MS = 4;
const MOST_LINGERING = 64;

/** Headers that say how a reply is framed. */
const OF_FRAMING = new Set(['connection', 'content-length', 'keep-alive', 'transfer-encoding']);

/** True when so much of a request's body is, or may be, still to come that reading it would delay others. */
export const isMostlyUnread = ({ complete, headers }: IncomingMessage): boolean =>
  !complete && (headers['transfer-encoding'] !== undefined || Number(headers['content-length'] ?? 0) > CHEAP_BYTES);

type LingeringConnection = { incoming: IncomingMessage; read: number; end: () => void };

/** Refuses requests without reading their whole bodies. */
export class UnreadBodies {
  readonly #lingering = new Map<Socket, LingeringConnection>();
  #reading: NodeJS.Timeout | null = null;

  /**
   * Sends a refusal and closes the connection in the order of RFC 9112 (9.6): first only for writing. A connection that is closed while
   * bytes arrive is reset, and many clients then lose the reply.
   */
  async refuse(refusal: Response, incoming: IncomingMessage): Promise<void> {
    const { socket } = incoming;
    const body = Buffer.from(await refusal.arrayBuffer());
    const headers = [...refusal.headers]
      .filter(([name]) => !OF_FRAMING.has(name))
      .map(([name, value]) => `${name}: ${value}`);
    const head = [
      `HTTP/1.1 ${refusal.status} ${STATUS_CODES[refusal.status] ?? ''}`,
      ...headers,
      `content-length: ${body.byteLength}`,
      'connection: close',
    ];
    socket.end(Buffer.concat([Buffer.from(`${head.join('\r\n')}\r\n\r\n`, 'latin1'), body]));
    this.#linger(socket, incoming);
  }

  #linger(socket: Socket, incoming: IncomingMessage): void {
    const [oldest] = this.#lingering.values();
    if (oldest && this.#lingering.size >= MOST_LINGERING) oldest.end();
    const end = () => {
      clearTimeout(timer);
      this.#lingering.delete(socket);
      socket.destroy();
    };
    const timer = setTimeout(end, LINGER_MS);
    socket.once('close', end);
    this.#lingering.set(socket, { incoming, read: 0, end });
    this.#reading ??= setInterval(() => this.#readSome(), READ_EVERY_MS);
  }

  #readSome(): void {
    for (const [socket, each] of this.#lingering) {
      if (each.read >= MOST_BYTES) continue;
      // Moves the connection to the end, so that the others come first next time.
      this.#lingering.delete(socket);
      this.#lingering.set(socket, each);
      const part: Buffer | null = each.incoming.read();
      each.read += part?.byteLength ?? 0;
      return;
    }
    if (this.#reading) clearInterval(this.#reading);
    this.#reading = null;
  }
}
