import { once } from 'node:events';
import { connect, createServer, type NetConnectOpts, type Server, type Socket } from 'node:net';

/** A proxy between two processes that can be cut. Every connection through it is then lost at once, and new ones fail until it is restored. */
export class Link {
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();
  #isCut = false;

  private constructor(upstream: NetConnectOpts) {
    this.#server = createServer((near) => {
      if (this.#isCut) return void near.destroy();
      const far = connect(upstream);
      for (const [one, other] of [
        [near, far],
        [far, near],
      ] as const) {
        this.#sockets.add(one);
        one.setNoDelay(true);
        one.on('error', () => {});
        one.on('close', () => void [this.#sockets.delete(one), other.destroy()]);
        one.pipe(other);
      }
    });
  }

  /** Listens at `at`: a port of the loopback or of another host, or a Unix socket's path. */
  static async open(at: number | string | { host: string; port: number }, upstream: NetConnectOpts): Promise<Link> {
    const link = new Link(upstream);
    if (typeof at === 'object') link.#server.listen(at);
    else link.#server.listen(typeof at === 'number' ? { port: at, host: '127.0.0.1' } : { path: at });
    await once(link.#server, 'listening');
    return link;
  }

  cut(): void {
    this.#isCut = true;
    for (const socket of this.#sockets) socket.destroy();
  }

  restore(): void {
    this.#isCut = false;
  }

  async close(): Promise<void> {
    this.cut();
    this.#server.close();
    await once(this.#server, 'close');
  }
}
