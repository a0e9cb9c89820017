import type { Duplex } from 'node:stream';
import { errorBody, type Failure } from '../../failure.ts';

/** Refuses what is no request for the app, on its bare socket. */
export function refuseOn(socket: Duplex, failure: Failure): void {
  const body = JSON.stringify(errorBody(failure));
  const head = [
    `HTTP/1.1 ${failure.status} ${failure.code}`,
    'Content-Type: application/json',
    `Content-Length: ${Buffer.byteLength(body)}`,
    'Connection: close',
  ];
  socket.end(`${head.join('\r\n')}\r\n\r\n${body}`);
}
