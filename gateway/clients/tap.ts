import type { IncomingMessage, ServerResponse } from 'node:http';
import { text } from 'node:stream/consumers';
import { parseObject, type JsonObject } from '../json.ts';
import { EngineServer } from '../testing/engine-server.ts';

/** A request of a client and its reply, as the client got it. */
export type Exchange = { path: string; body: JsonObject; status: number; reply: string };

/** What belongs to one connection. */
const HOP = /^(host|connection|keep-alive|transfer-encoding|content-length|accept-encoding|expect)$/;

/** Stands between a client and the gateway, and keeps what passes. */
export class Tap extends EngineServer {
  readonly heard: Exchange[] = [];
  readonly #gateway: string;

  constructor(gateway: string) {
    super();
    this.#gateway = gateway;
  }

  protected override async respond(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { method = 'GET', url = '/' } = request;
    const sent = await text(request);
    const headers = Object.entries(request.headers).flatMap(([name, value]): [string, string][] => (value === undefined || HOP.test(name) ? [] : [[name, String(value)]]));
    const reply = await fetch(`${this.#gateway}${url}`, { method, headers, body: method === 'GET' || method === 'HEAD' ? undefined : sent });
    response.writeHead(reply.status, [...reply.headers].filter(([name]) => !HOP.test(name)).flat());
    const decoder = new TextDecoder();
    let said = '';
    for await (const bytes of reply.body ?? []) {
      said += decoder.decode(bytes, { stream: true });
      response.write(bytes);
    }
    const body = parseObject(sent);
    if (body) this.heard.push({ path: url, body, status: reply.status, reply: said });
    response.end();
  }
}
