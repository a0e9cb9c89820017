import { contentOf, digestOf, type Content } from '../../store/calls/content.ts';
import type { FieldsMeaning } from './conversation-memory.ts';
import { isObject, type JsonObject } from '../json.ts';

/** A request's conversation in a form in which an agent's echo equals the reply that it was given. */
export type Conversation = ChatConversation | { prompt: string | readonly number[] };
export type ChatConversation = {
  /** A digest of the prompt's other inputs: the tools and the template's settings. */
  context: string;
  /** One key for each message: a digest of its content, with a mark of its role. */
  keys: string[];
};

const TEMPLATE_FIELDS = ['tools', 'chat_template', 'chat_template_kwargs', 'documents', 'reasoning_effort'];

/** The context of most requests, which have none of these fields. */
const NO_CONTEXT = digestOf(TEMPLATE_FIELDS.map(() => ''));

/**
 * Returns null when the prompt cannot be continued by ids: a message is invalid, or the last one is itself to be continued. `lists` has the
 * known contents of the request's lists.
 */
export function conversationOf(
  body: JsonObject,
  lists: Readonly<Record<string, readonly Content[]>> = {},
): Conversation | null {
  const { messages, prompt } = body;
  if (typeof prompt === 'string') return { prompt };
  if (Array.isArray(prompt)) return { prompt: prompt.map(Number) };
  if (!Array.isArray(messages) || !continues(body)) return null;
  const keys = messages.map(keyOf);
  if (!keys.every((key) => key !== null)) return null;
  const context = TEMPLATE_FIELDS.map((field) =>
    lists[field] ? listKey(lists[field].map(({ digest }) => digest)) : contextKey(body[field]),
  );
  return { context: context.every((key) => key === '') ? NO_CONTEXT : digestOf(context), keys };
}

const continues = (body: JsonObject): boolean =>
  body.continue_final_message !== true && body.add_generation_prompt !== false;

/** Returns what a stored request's non-empty fields mean for its conversation. */
export function meaningOfFields(fields: JsonObject): FieldsMeaning {
  const present = TEMPLATE_FIELDS.filter((field) => fields[field] !== undefined);
  return {
    context: Object.fromEntries(present.map((field) => [field, contextKey(fields[field])])),
    continues: continues(fields),
    hasPromptIds: Array.isArray(fields.prompt),
  };
}

/** Returns the context of a stored request. `lists` has the digests of its items, `empty` its fields without a value. */
export function storedContext(fields: FieldsMeaning, lists: Record<string, string[]>, empty: JsonObject): string {
  return digestOf(
    TEMPLATE_FIELDS.map((field) =>
      lists[field] ? listKey(lists[field]) : (fields.context[field] ?? contextKey(empty[field])),
    ),
  );
}

const listKey = (digests: readonly string[]): string => `[${digests.join('+')}]`;

/** Hashes by content, because the store returns a request's fields in another order. */
function contextKey(value: unknown): string {
  if (value === undefined || value === null) return '';
  return Array.isArray(value) ? listKey(value.map((item) => contentOf(item).digest)) : contentOf(value).digest;
}

/**
 * Returns a key of the role, text and tool calls. It leaves out reasoning, which agents drop and the recorded ids keep, and fields that
 * SDKs add or drop. An empty value equals an absent one. Content that is not text is named by its digest. Returns null when the message is
 * invalid.
 */
export function keyOf(message: unknown): string | null {
  if (!isObject(message)) return null;
  const text = contentKey(message.content);
  if (text === null) return null;
  const tools = Array.isArray(message.tool_calls) ? message.tool_calls.map(toolOf) : [];
  const digest = digestOf([message.role || null, text, tools, message.tool_call_id || null, message.name || null]);
  return message.role === 'assistant' ? REPLY + digest : OTHER + digest;
}

/** True for a reply with thinking apart from its text. */
export const thinks = (message: unknown): boolean =>
  isObject(message) &&
  [message.reasoning, message.reasoning_content].some((each) => typeof each === 'string' && each !== '');

const [REPLY, OTHER] = ['r', 'm'];

/** True when a message's key is an assistant's. */
export const isReply = (key: string): boolean => key.startsWith(REPLY);

function contentKey(content: unknown): unknown {
  if (content === null || content === undefined) return '';
  if (typeof content === 'string') return content;
  if (!Array.isArray(content)) return null;
  const parts: unknown[] = content.map((part: unknown) =>
    isObject(part) && part.type === 'text' && typeof part.text === 'string'
      ? part.text
      : { is: contentOf(part).digest },
  );
  return parts.length < 2 ? (parts[0] ?? '') : parts;
}

function toolOf(call: unknown): unknown {
  if (!isObject(call) || !isObject(call.function)) return call;
  return [call.id ?? null, call.function.name ?? null, argumentsOf(call.function.arguments)];
}

/** Compares arguments by value, because protocols whose tool calls hold an object write it differently than it was sampled. */
function argumentsOf(given: unknown): unknown {
  if (typeof given !== 'string') return given ?? null;
  if (given.trim() === '') return '{}';
  try {
    return JSON.stringify(JSON.parse(given), inOrder);
  } catch {
    return given;
  }
}

const inOrder = (_key: string, value: unknown): unknown => (isObject(value) ? sorted(value) : value);

const sorted = (value: JsonObject): JsonObject =>
  Object.fromEntries(Object.entries(value).toSorted(([a], [b]) => (a < b ? -1 : 1)));
