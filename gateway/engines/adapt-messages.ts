import { isObject, type JsonObject } from '../json.ts';
import type { EngineConnection } from './connection.ts';
import type { Replica } from './replica.ts';

/** An image of a grey square. */
const IMAGE = 'data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAEAAAABACAIAAAAlC+aJAAAAS0lEQVR42u3PMQ0AAAwDoEqv9ErYvQQckD4XAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAYHLAB8+AWnmfUycAAAAAElFTkSuQmCC';
const said = (role: string, content: unknown): JsonObject => ({ role, content });
const call = { id: 'call', type: 'function', function: { name: 'f', arguments: '{}' } };

/**
 * The message features that not every engine's model or chat template accepts. `probe`: a conversation that uses the feature. `without`:
 * the same number of messages without the feature.
 */
const FEATURES = {
  // A late system message stays in its place as a user's message. At the front, it would change the prompt of each turn from its start.
  late_system: {
    probe: ['system', 'user', 'system', 'user'].map((role) => said(role, 'x')),
    holds: (message: JsonObject, place: number) => place > 0 && isSystem(message),
    without: (message: JsonObject) => ({ ...message, role: 'user' }),
  },
  // A text model cannot read an image.
  image: {
    probe: [said('user', [{ type: 'text', text: 'x' }, { type: 'image_url', image_url: { url: IMAGE } }])],
    holds: (message: JsonObject) => parts(message).some(isImage),
    without: (message: JsonObject) => ({ ...message, content: inWords(parts(message).filter((part) => !isImage(part))) }),
  },
  // A template that does not expand the tools that a search found receives their names.
  tool_reference: {
    probe: [said('user', 'x'), { ...said('assistant', ''), tool_calls: [call] }, { ...said('tool', 'x'), tool_call_id: 'call' }, { ...said('tool', [{ type: 'tool_reference', name: 'f' }]), tool_call_id: 'call' }],
    holds: (message: JsonObject) => parts(message).some(isToolReference),
    without: (message: JsonObject) => ({ ...message, content: inWords(parts(message).map((part) => (isToolReference(part) ? { type: 'text', text: String(part.name) } : part))) }),
  },
  // vLLM refuses OpenAI's files.
  file: {
    probe: [said('user', [{ type: 'text', text: 'x' }, { type: 'file', file: { filename: 'x.txt', file_data: 'data:text/plain;base64,eA==' } }])],
    holds: (message: JsonObject) => parts(message).some(isFile),
    without: (message: JsonObject) => ({ ...message, content: inWords(parts(message).filter((part) => !isFile(part))) }),
  },
};
export type Feature = keyof typeof FEATURES;
const NAMES: readonly Feature[] = ['late_system', 'image', 'tool_reference', 'file'];

/** Returns whether the engine's model and chat template accept messages with this feature. */
export async function readTakes(feature: Feature, connection: EngineConnection, model: string | null, signal: AbortSignal): Promise<boolean> {
  const body = JSON.stringify({ ...(model === null ? {} : { model }), messages: FEATURES[feature].probe });
  const reply = await connection.ask({ method: 'POST', path: '/tokenize', body, signal });
  for await (const _ of reply.body);
  return reply.status !== 400;
}

/** `leftOut`: the messages that lost a part, each with the feature. */
export type Adapted = { body: JsonObject; leftOut: { feature: Feature; place: number }[] };

/** Returns the body with only the message parts that this replica's model and template accept. The record keeps the messages as they came. */
export async function adaptMessages(replica: Pick<Replica, 'takes'>, model: string | null, body: JsonObject): Promise<Adapted> {
  const leftOut: Adapted['leftOut'] = [];
  if (!Array.isArray(body.messages)) return { body, leftOut };
  let messages: unknown[] = body.messages;
  for (const name of NAMES) {
    const { holds, without } = FEATURES[name];
    const isHeld = (message: unknown, place: number): message is JsonObject => isObject(message) && holds(message, place);
    if (!messages.some(isHeld) || (await replica.takes(name, model))) continue;
    messages = messages.map((message, place) => {
      if (!isHeld(message, place)) return message;
      if (name === 'image' || name === 'file') leftOut.push({ feature: name, place });
      return without(message);
    });
  }
  return { body: messages === body.messages ? body : { ...body, messages }, leftOut };
}

/** Returns whether a message contains something that a prompt of token ids cannot carry. */
export const hasMedia = (messages: readonly unknown[]): boolean =>
  messages.some((message) => isObject(message) && parts(message).some(({ type }) => !TEXTS.has(String(type)) && type !== 'tool_reference'));

const TEXTS = new Set(['text', 'refusal', 'thinking']);

const parts = ({ content }: JsonObject): JsonObject[] => (Array.isArray(content) ? content.filter(isObject) : []);

/** Joins parts that are all text into one text, which every template accepts. */
const inWords = (left: JsonObject[]): JsonObject[] | string => (left.every(({ type }) => type === 'text') ? left.map(({ text }) => String(text)).join('\n') : left);

const isSystem = ({ role }: JsonObject): boolean => role === 'system' || role === 'developer';
const isImage = ({ type }: JsonObject): boolean => type === 'image_url' || type === 'input_image';
const isToolReference = ({ type }: JsonObject): boolean => type === 'tool_reference';
const isFile = ({ type }: JsonObject): boolean => type === 'file' || type === 'input_file';
