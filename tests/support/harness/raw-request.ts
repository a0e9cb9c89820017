import { once } from 'node:events';
import { connect } from 'node:net';

/** Sends bytes unchanged, including what an HTTP client would correct, and reads until the server ends the connection. */
export async function rawRequest(url: string, bytes: string): Promise<{ status: number; text: string }> {
  const { hostname, port } = new URL(url);
  const socket = connect(Number(port), hostname);
  let text = '';
  socket.on('data', (part: Buffer) => (text += part.toString()));
  socket.on('error', () => {});
  socket.write(bytes);
  await once(socket, 'close');
  return { status: Number(/^HTTP\/1\.1 (\d+)/.exec(text)?.[1] ?? 0), text };
}

type Raw = { method: string; target: string; host?: string; key?: string; headers?: string[]; body?: string };

export function rawText({ method, target, host = '127.0.0.1', key, headers = [], body = '' }: Raw): string {
  const own = [
    `Host: ${host}`,
    'Connection: close',
    `Content-Length: ${Buffer.byteLength(body)}`,
    ...(key === undefined ? [] : [`Authorization: Bearer ${key}`]),
    ...headers,
  ];
  return `${method} ${target} HTTP/1.1\r\n${own.join('\r\n')}\r\n\r\n${body}`;
}
