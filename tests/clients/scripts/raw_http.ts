/** Sends HTTP by hand in forms that clients use: a chunked body, pieces of a few bytes, and several requests at once over one connection. */
import { once } from 'node:events';
import { connect } from 'node:net';
import { text } from 'node:stream/consumers';
import { setTimeout } from 'node:timers/promises';

const { hostname, port, pathname } = new URL(process.env['OPENAI_BASE_URL'] ?? '');
const bodyOf = (mode: string) => JSON.stringify({ model: 'policy', stream: mode.includes('streamed'), messages: [{ role: 'user', content: `Look into the folder (${mode}).` }] });
const head = (more: string) => `POST ${pathname}/chat/completions HTTP/1.1\r\nhost: ${hostname}\r\nauthorization: Bearer ${process.env['OPENAI_API_KEY']}\r\ncontent-type: application/json\r\n${more}\r\n\r\n`;
const whole = (body: string, more = '') => `${head(`content-length: ${Buffer.byteLength(body)}${more}`)}${body}`;

/** Sends `pieces` one after the other on one connection, and returns the bytes that come back. */
async function exchange(pieces: string[]): Promise<string> {
  const socket = connect(Number(port), hostname);
  await once(socket, 'connect');
  const reply = text(socket);
  for (const piece of pieces) {
    socket.write(piece);
    await setTimeout(1);
  }
  return reply;
}

/** Asks the policy once, and returns the bytes of the reply. */
const minimal = (mode: string) => exchange([whole(bodyOf(mode), '\r\nconnection: close')]);

function forms(mode: string): string[] {
  const body = bodyOf(mode);
  const last = '\r\nconnection: close';
  if (mode === 'pipelined') return [`${whole(body)}${whole(body)}${whole(body, last)}`];
  if (mode.startsWith('chunked')) return [`${head(`transfer-encoding: chunked${last}`)}`, ...(body.match(/.{1,20}/gs) ?? []).map((part) => `${part.length.toString(16)}\r\n${part}\r\n`), '0\r\n\r\n'];
  return whole(body, last).match(/.{1,40}/gs) ?? [];
}

for (const mode of process.argv.slice(2)) {
  const reply = await (mode === 'one piece' ? minimal(mode) : exchange(forms(mode)));
  const replies = reply.match(/HTTP\/1\.1 200/g)?.length ?? 0;
  if (replies !== (mode === 'pipelined' ? 3 : 1)) throw new Error(`${mode}: ${replies} replies`);
}
