/**
 * Shows what the gateway's libraries cost alone: a server (Hono on Node) and a connection to an engine (undici) that pass a reply on
 * and do nothing else. Runs in its own process, like the gateway.
 */
import { Hono } from 'hono';
import type { GatewayEnv } from '../../../gateway/http/deps.ts';
import { readText } from '../../../gateway/engines/connection.ts';
import { UndiciConnection } from '../../../gateway/runtimes/node/engine-connection.ts';
import { listen } from '../../../gateway/runtimes/node/server.ts';

const engine = new UndiciConnection(process.argv[2] ?? '');
const app = new Hono<GatewayEnv>();
app.post('/v1/chat/completions', async (c) => {
  const { status, contentType, body } = await engine.send({
    method: 'POST',
    path: c.req.path,
    body: await c.req.text(),
    signal: c.req.raw.signal,
  });
  const reply = contentType.startsWith('text/event-stream')
    ? streamOf(body[Symbol.asyncIterator]())
    : await readText(body);
  return new Response(reply, { status, headers: { 'content-type': contentType } });
});

function streamOf(bytes: AsyncIterator<Uint8Array>): ReadableStream<Uint8Array> {
  const source: UnderlyingDefaultSource<Uint8Array> = {
    async pull(controller) {
      const { done, value } = await bytes.next();
      if (done) controller.close();
      else controller.enqueue(value);
    },
  };
  return new ReadableStream(source, { highWaterMark: 0 });
}

const server = await listen(app, { host: '127.0.0.1', port: 0, headersTimeoutMs: 60_000 });
const address = server.address();
console.log(`listening on http://127.0.0.1:${typeof address === 'object' && address ? address.port : ''}`);
process.once('disconnect', () => process.exit());
