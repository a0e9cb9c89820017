import type { IncomingMessage } from 'node:http';
import { HTTP_PORT, parseHostAndPort } from '../../../core/host-rules.ts';
import { Refusal } from './refusal.ts';

export type Target = { host: string; port: number };

/** The headers that are about one connection (RFC 9110, 7.6.1). A proxy does not pass them on. */
const HOP_BY_HOP = [
  'connection',
  'keep-alive',
  'proxy-connection',
  'proxy-authenticate',
  'proxy-authorization',
  'te',
  'trailer',
  'transfer-encoding',
  'upgrade',
];
/** The proxy has answered this one itself. */
const ANSWERED = 'expect';

/**
 * Reads what a request asks for. `tunnel` is the host of the tunnel in which the request came; without one its URL must be absolute.
 * @throws Refusal
 */
export function readTarget({ url = '' }: IncomingMessage, tunnel: Target | null): Target & { path: string } {
  if (tunnel !== null) {
    if (url.startsWith('/')) return { ...tunnel, path: url };
    throw new Refusal('bad_request', 'a request in a tunnel names a path alone');
  }
  const [, authority, rest = ''] = /^http:\/\/([^/?]*)([/?].*)?$/i.exec(url) ?? [];
  if (authority === undefined)
    throw new Refusal(
      'bad_request',
      'this is a proxy: ask it for http://HOST/PATH, or for a tunnel by CONNECT HOST:PORT',
    );
  const target = withPort(authority);
  if (target === null) throw new Refusal('bad_request', 'the URL has no host, or more than a host and a port');
  return { ...target, path: rest.startsWith('/') ? rest : `/${rest}` };
}

/**
 * Requires that all servers read a request in the same way, and as one to this host.
 * @throws Refusal
 */
export function requireOneMeaning({ headers, rawHeaders }: IncomingMessage, { host, port }: Target): void {
  const names = rawHeaders.filter((_, index) => index % 2 === 0).map((name) => name.toLowerCase());
  if (names.filter((name) => name === 'host').length > 1)
    throw new Refusal('bad_request', 'there is more than one Host header');
  const named = headers.host === undefined ? null : withPort(headers.host);
  if (headers.host !== undefined && (named?.host !== host || named.port !== port))
    throw new Refusal('forbidden', 'the Host header names another host than the request');
  const encoding = headers['transfer-encoding'];
  if (encoding !== undefined && encoding.toLowerCase() !== 'chunked')
    throw new Refusal('bad_request', 'of the transfer encodings only `chunked` is passed on');
  if (encoding !== undefined && headers['content-length'] !== undefined)
    throw new Refusal('bad_request', 'there are both Content-Length and Transfer-Encoding');
}

function withPort(authority: string): Target | null {
  const found = parseHostAndPort(authority);
  return found && { host: found.host, port: found.port ?? HTTP_PORT };
}

/** Returns the headers that go on to the server. */
export function requestHeaders(request: IncomingMessage, { host, port }: Target): Record<string, string | string[]> {
  const left = connectionHeaders(request);
  const passed = Object.entries(request.headersDistinct).flatMap(([name, values]) =>
    values === undefined || left.has(name) || name === ANSWERED ? [] : [[name, values] as const],
  );
  return {
    ...Object.fromEntries(passed),
    host: port === HTTP_PORT ? host : `${host}:${port}`,
    via: '1.1 trialgate',
    connection: 'close',
    ...frameOf(request),
  };
}

/** Returns the header that says where the body ends, whatever `Connection` names. The server would read a body without one as another request. */
function frameOf({ headers }: IncomingMessage): Record<string, string> {
  if (headers['transfer-encoding'] !== undefined) return { 'transfer-encoding': 'chunked' };
  return headers['content-length'] === undefined ? {} : { 'content-length': headers['content-length'] };
}

/** Returns the headers of a server's response that go on to the client, as a flat list. */
export function responseHeaders(response: IncomingMessage): string[] {
  const left = connectionHeaders(response);
  const { rawHeaders } = response;
  return rawHeaders.filter((_, index) => !left.has((rawHeaders[index - (index % 2)] ?? '').toLowerCase()));
}

export const hasBody = ({ headers }: IncomingMessage): boolean =>
  headers['transfer-encoding'] !== undefined || headers['content-length'] !== undefined;

/** Returns the headers of one connection, those that `Connection` names among them. */
function connectionHeaders({ headers }: IncomingMessage): Set<string> {
  const named = (headers.connection ?? '').split(',').map((name) => name.trim().toLowerCase());
  return new Set([...HOP_BY_HOP, ...named]);
}
