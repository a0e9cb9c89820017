import type { IncomingMessage, ServerResponse } from 'node:http';
import { text } from 'node:stream/consumers';
import { parseObject, type JsonObject } from '../../gateway/json.ts';
import { EngineServer } from '../support/fakes/engine-server.ts';

/** A client's request and its reply as the client received it. `cut` is true when the connection broke before any of the reply arrived. */
export type Exchange = { path: string; body: JsonObject; status: number; reply: string; cut: boolean };

/** Headers that belong to one connection. */
const HOP = /^(host|connection|keep-alive|transfer-encoding|content-length|accept-encoding|expect)$/;

/** Passes requests between a client and the gateway, and keeps a copy. */
export class Tap extends EngineServer {
  readonly exchanges: Exchange[] = [];
  /** True to break the client's connection when the reply to this request is ready. */
  cuts: (body: string) => boolean = () => false;
  readonly #gateway: string;

  constructor(gateway: string) {
    super();
    this.#gateway = gateway;
  }

  protected override async respond(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { method = 'GET', url = '/' } = request;
    const sent = await text(request);
    const headers = Object.entries(request.headers).flatMap(([name, value]): [string, string][] =>
      value === undefined || HOP.test(name) ? [] : [[name, String(value)]],
    );
    const reply = await fetch(`${this.#gateway}${url}`, {
      method,
      headers,
      body: method === 'GET' || method === 'HEAD' ? undefined : sent,
    });
    const body = parseObject(sent);
    const cut = reply.status === 200 && this.cuts(sent);
    const decoder = new TextDecoder();
    let said = '';
    if (!cut) response.writeHead(reply.status, [...reply.headers].filter(([name]) => !HOP.test(name)).flat());
    for await (const bytes of reply.body ?? []) {
      said += decoder.decode(bytes, { stream: true });
      if (!cut) response.write(bytes);
    }
    if (body) this.exchanges.push({ path: url, body, status: reply.status, reply: said, cut });
    if (cut) request.socket.destroy();
    else response.end();
  }
}
