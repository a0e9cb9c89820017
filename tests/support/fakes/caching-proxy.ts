import { once } from 'node:events';
import { connect, createServer, type Socket } from 'node:net';

/** Queries that Hyperdrive's documentation says it does not cache: those that write or lock, or call volatile or stable functions. */
const UNCACHED =
  /\b(now|random|clock_timestamp|make_interval|pg_sleep)\s*\(|\b(insert|update|delete|for share|for update|for no key update)\b/i;
const TYPE_AND_LENGTH = 5;
const NOTHING: Buffer = Buffer.alloc(0);

/** Starts a PostgreSQL whose reads are cached for ever by text and parameters, as behind a Hyperdrive with its cache left on. */
export async function startCachingProxy(
  databaseUrl: string,
  { spares }: { spares?: RegExp } = {},
): Promise<{ url: string; hits: () => number; close: () => Promise<void> }> {
  const target = new URL(databaseUrl);
  const cache = new Map<string, Buffer>();
  let hits = 0;
  const sockets = new Set<Socket>();
  const server = createServer((client) => {
    const database = connect(Number(target.port), target.hostname);
    for (const socket of [client, database]) {
      sockets.add(socket);
      socket.on('error', () => {});
      socket.on('close', () => void [client.destroy(), database.destroy(), sockets.delete(socket)]);
    }
    let isGreeted = false;
    let inTransaction = false;
    let asked = NOTHING;
    let batch = NOTHING;
    let answer = NOTHING;
    let awaited: string | null = null;
    client.on('data', (bytes: Buffer) => {
      if (!isGreeted) {
        isGreeted = true;
        return void database.write(bytes);
      }
      asked = Buffer.concat([asked, bytes]);
      for (let message = take(); message; message = take()) {
        batch = Buffer.concat([batch, message]);
        // Messages that end a batch: Sync, a simple query, a password, the end.
        if (!'SQpX'.includes(String.fromCharCode(message[0] ?? 0))) continue;
        const key = inTransaction ? null : keyOf(batch);
        const known = key === null ? undefined : cache.get(key);
        if (known) {
          hits += 1;
          client.write(known);
        } else {
          awaited = key;
          database.write(batch);
        }
        batch = NOTHING;
      }
    });
    const take = (): Buffer | null => {
      const all = asked;
      if (all.length < TYPE_AND_LENGTH) return null;
      const length = 1 + all.readInt32BE(1);
      if (all.length < length) return null;
      asked = all.subarray(length);
      return all.subarray(0, length);
    };
    database.on('data', (bytes: Buffer) => {
      client.write(bytes);
      answer = Buffer.concat([answer, bytes]);
      // ReadyForQuery comes last: its type, its length 5, and the state of the transaction.
      const end = answer.subarray(-6);
      if (String.fromCharCode(end[0] ?? 0) !== 'Z' || end.length < 6 || end.readInt32BE(1) !== 5) return;
      inTransaction = String.fromCharCode(end[5] ?? 0) !== 'I';
      if (awaited !== null) cache.set(awaited, answer);
      awaited = null;
      answer = NOTHING;
    });
  });
  /** Returns null for a batch that may not be cached, because it is not a read by an unnamed statement. */
  const keyOf = (batch: Buffer): string | null => {
    const text = batch.toString('latin1');
    const sql = /^P....\0([^\0]*)/s.exec(text)?.[1] ?? '';
    return /^\s*select/i.test(sql) && !UNCACHED.test(sql) && !spares?.test(sql) ? text : null;
  };
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  if (typeof address !== 'object' || !address) throw new Error('no port');
  const url = new URL(databaseUrl);
  url.port = `${address.port}`;
  const close = async () => {
    for (const socket of sockets) socket.destroy();
    server.close();
    await once(server, 'close');
  };
  return { url: url.href, hits: () => hits, close };
}
