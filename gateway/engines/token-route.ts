import { Failure } from '../failure.ts';
import { parseObject, type JsonObject } from '../json.ts';
import type { Takes } from './adapt-messages.ts';
import { readText, type EngineConnection } from './connection.ts';
import { engineJson } from './engine-json.ts';

/** Asks the route that tokenizes a chat, which refuses messages that the template cannot render. */
export const takesBy =
  (connection: EngineConnection, path: string, fields: JsonObject = {}): Takes =>
  async (messages, signal) => {
    const body = JSON.stringify({ ...fields, messages });
    const reply = await connection.ask({ method: 'POST', path, body, signal });
    for await (const _ of reply.body);
    return reply.status !== 400;
  };

/** Returns the number of tokens that the route that tokenizes a chat counts. */
export async function countBy(
  connection: EngineConnection,
  path: string,
  body: JsonObject,
  signal: AbortSignal,
): Promise<number> {
  const reply = await connection.send({ method: 'POST', path, body: engineJson(body), signal });
  const { count } = parseObject(await readText(reply.body)) ?? {};
  if (reply.status === 200 && typeof count === 'number') return count;
  throw new Failure(
    reply.status === 400 ? 400 : 502,
    'engine_error',
    `the engine does not count these tokens: it answered ${reply.status}`,
  );
}
