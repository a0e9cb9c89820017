import { isObject, type JsonObject } from '../json.ts';
import type { EngineConnection } from './connection.ts';
import type { Replica } from './replica.ts';

const LATE = ['system', 'user', 'system', 'user'].map((role) => ({ role, content: 'x' }));

/** Whether the engine's chat template takes a system message that is not the first; some templates refuse it. */
export async function readTakesLateSystem(connection: EngineConnection, model: string | null, signal: AbortSignal): Promise<boolean> {
  const body = JSON.stringify({ ...(model === null ? {} : { model }), messages: LATE });
  const reply = await connection.ask({ method: 'POST', path: '/tokenize', body, signal });
  for await (const _ of reply.body);
  return reply.status !== 400;
}

/** What this replica's chat template takes of it. */
export async function fitted(replica: Pick<Replica, 'takesLateSystem'>, model: string | null, body: JsonObject): Promise<JsonObject> {
  return hasLateSystem(body) && !(await replica.takesLateSystem(model)) ? withoutLateSystem(body) : body;
}

const hasLateSystem = ({ messages }: JsonObject): boolean => Array.isArray(messages) && messages.slice(1).some(isSystem);

/** A late system message as a user's, where it stands: put in front of all, it would change the prompt of each turn from its start. */
function withoutLateSystem(body: JsonObject): JsonObject {
  if (!Array.isArray(body.messages)) return body;
  const messages = body.messages.map((message: unknown, i) => (i > 0 && isSystem(message) ? { ...message, role: 'user' } : message));
  return { ...body, messages };
}

const isSystem = (message: unknown): message is JsonObject => isObject(message) && (message.role === 'system' || message.role === 'developer');
