import { readText, type EngineConnection } from './connection.ts';
import type { Engine } from './engine.ts';

/** Returns the text of a reply with status 200, else null. Rejects when the engine fails. */
export async function getText(connection: EngineConnection, path: string, signal: AbortSignal): Promise<string | null> {
  const reply = await connection.ask({ method: 'GET', path, signal });
  const text = await readText(reply.body);
  if (reply.status >= 500) throw new Error(`${connection.url}${path} answered ${reply.status}`);
  return reply.status === 200 ? text : null;
}

/** Returns the JSON of a reply with status 200, else null. Rejects when the engine fails. */
export async function getJson(connection: EngineConnection, path: string, signal: AbortSignal): Promise<unknown> {
  const text = await getText(connection, path, signal);
  try {
    return text === null ? null : JSON.parse(text);
  } catch {
    return null;
  }
}

/** Returns a check that is true when the server answers at this path without an error of its own. */
export const answersAt =
  (path: string): Engine['isAlive'] =>
  async (connection, signal) => {
    const { status, body } = await connection.ask({ method: 'GET', path, signal });
    await readText(body);
    return status < 500;
  };
