import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import { createServer as createHttpServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { createServer as createHttpsServer } from 'node:https';
import { connect, createServer, type Server, type Socket } from 'node:net';
import { text } from 'node:stream/consumers';
import { TLSSocket } from 'node:tls';
import { onTestFinished } from 'vitest';
import type { Outside } from '../../../activities/sandbox/egress/outside.ts';

/** A certificate for all names that these tests use, with its key. */
export function makeCertificate(): { key: string; cert: string } {
  const names = ['allowed.test', '*.allowed.test', 'other.test', 'ported.test'].map((name) => `DNS:${name}`).join(',');
  const options = ['-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes', '-days', '2', '-subj', '/CN=allowed.test'];
  const made = execFileSync(
    'openssl',
    [
      ...['req', '-x509', '-newkey', 'ec', ...options, '-addext', `subjectAltName=${names}`],
      '-keyout',
      '-',
      '-out',
      '-',
    ],
    { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] },
  );
  const at = made.indexOf('-----BEGIN CERTIFICATE');
  return { key: made.slice(0, at), cert: made.slice(at) };
}

/** A public address. Nothing connects to it: it stands for servers on loopback. */
const ADDRESS = '1.2.3.4';

/** Other hosts, all of them servers on loopback, and the name servers that know them. */
export class OutsideWorld {
  /** The addresses of each name. A function is asked each time. */
  readonly names = new Map<string, string[] | (() => string[])>();
  /** The local ports that stand for ports of the hosts. */
  readonly ports = new Map<number, number>();
  readonly resolved: string[] = [];
  readonly connected: string[] = [];
  /** What the servers of HTTP and HTTPS were asked. */
  readonly asked: { host: string; url: string; serverName: string; headers: string[]; body: string }[] = [];
  #open = 0;

  readonly outside: Outside = {
    resolve: async (name) => {
      this.resolved.push(name);
      const addresses = this.names.get(name) ?? [];
      return typeof addresses === 'function' ? addresses() : addresses;
    },
    connect: (address, port) => {
      this.connected.push(`${address} ${port}`);
      const socket = connect({ host: '127.0.0.1', port: this.ports.get(port) ?? 1, allowHalfOpen: true });
      this.#open += 1;
      socket.once('close', () => (this.#open -= 1));
      return socket;
    },
    close: () => {},
  };

  /** The connections of the proxy that are still open. */
  get open(): number {
    return this.#open;
  }

  /** Makes names lead to a public address. */
  name(...names: string[]): this {
    for (const name of names) this.names.set(name, [ADDRESS]);
    return this;
  }

  /** Puts a server behind a port of all hosts, until the test ends. */
  async serve(port: number, server: Server): Promise<void> {
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    const address = server.address();
    this.ports.set(port, address !== null && typeof address === 'object' ? address.port : 0);
    const sockets = new Set<Socket>();
    server.on('connection', (socket: Socket) => {
      sockets.add(socket.on('error', () => {}));
      socket.once('close', () => sockets.delete(socket));
    });
    onTestFinished(() => {
      server.close();
      for (const socket of sockets) socket.destroy();
    });
  }

  /** Serves HTTP on port 80, and with a certificate HTTPS on port 443. Both answer with what was asked. */
  async serveWeb(certificate?: { key: string; cert: string }): Promise<this> {
    const answer = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
      const { socket, headers, rawHeaders, method = '', url = '' } = request;
      const body = await text(request).catch(() => '(cut)');
      const serverName = socket instanceof TLSSocket ? String(socket.servername) : '';
      this.asked.push({ host: headers.host ?? '', url, serverName, headers: rawHeaders, body });
      response.setHeader('connection', 'keep-alive, x-of-hop');
      response.setHeader('x-of-hop', 'server');
      response.setHeader('set-cookie', ['a=1', 'b=2']);
      response.end(`${method} ${headers.host} ${url} ${body}`);
    };
    await this.serve(
      80,
      createHttpServer((request, response) => void answer(request, response)),
    );
    if (certificate)
      await this.serve(
        443,
        createHttpsServer(certificate, (request, response) => void answer(request, response)),
      );
    return this;
  }

  /** Serves bytes on a port. Returns what each connection sent, as it comes. */
  async serveBytes(port: number, onBytes: (socket: Socket, bytes: Buffer) => void): Promise<Buffer[]> {
    const received: Buffer[] = [];
    const server = createServer((socket) => {
      socket.on('data', (bytes) => {
        received.push(bytes);
        onBytes(socket, bytes);
      });
    });
    await this.serve(port, server);
    return received;
  }
}
