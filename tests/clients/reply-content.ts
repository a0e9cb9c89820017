import { isDeepStrictEqual } from 'node:util';
import { isObject, parseObject, type JsonObject } from '../../gateway/json.ts';
import { cutAtStop } from '../support/oracles/visible-text-oracle.ts';
import { decode } from '../support/fakes/toy-tokenizer.ts';

/** The content of a reply: its text and its tool calls. */
export type ReplyContent = { text: string; calls: { name: unknown; given: unknown }[] };

/** Returns the content that a client received, in a whole reply or a stream's events of any protocol. */
export function receivedContent(reply: string): ReplyContent {
  const events = reply.startsWith('{')
    ? [reply]
    : reply.split('\n').flatMap((line) => (line.startsWith('data: {') ? [line.slice(6)] : []));
  const builder: ReplyBuilder = { text: '', calls: [], parts: new Map() };
  for (const event of events.map(parseObject)) if (event) addEvent(event, builder);
  return {
    text: builder.text,
    calls: [
      ...builder.calls,
      ...[...builder.parts.values()].map(({ name, given }) => ({ name, given: parsed(given) })),
    ],
  };
}

type ReplyBuilder = ReplyContent & { parts: Map<unknown, { name: string; given: string }> };

function addEvent(event: JsonObject, builder: ReplyBuilder): void {
  if (Array.isArray(event.choices)) return event.choices.filter(isObject).forEach((choice) => addChat(choice, builder));
  if (Array.isArray(event.candidates))
    return event.candidates.filter(isObject).forEach((each) => addParts(each, builder));
  if (event.object === 'response') return addItems(event.output, builder);
  if (event.type === 'response.completed' && isObject(event.response)) return addItems(event.response.output, builder);
  if (event.type === 'message') return addBlocks(event.content, builder);
  if (event.type === 'content_block_start' && isObject(event.content_block) && event.content_block.type === 'tool_use')
    builder.parts.set(event.index, { name: String(event.content_block.name), given: '' });
  if (event.type === 'content_block_delta' && isObject(event.delta)) {
    const { text, partial_json } = event.delta;
    if (typeof text === 'string') builder.text += text;
    const part = builder.parts.get(event.index);
    if (part && typeof partial_json === 'string') part.given += partial_json;
  }
}

function addChat({ message, delta }: JsonObject, builder: ReplyBuilder): void {
  const { content, tool_calls } = [message, delta].find(isObject) ?? {};
  if (typeof content === 'string') builder.text += content;
  for (const [at, call] of Array.isArray(tool_calls) ? tool_calls.entries() : []) {
    if (!isObject(call) || !isObject(call.function)) continue;
    const { name, arguments: given } = call.function;
    const part = builder.parts.get(call.index ?? at) ?? { name: '', given: '' };
    builder.parts.set(call.index ?? at, {
      name: part.name + String(name ?? ''),
      given: part.given + String(given ?? ''),
    });
  }
}

function addItems(items: unknown, builder: ReplyBuilder): void {
  for (const item of Array.isArray(items) ? items.filter(isObject) : []) {
    if (item.type === 'function_call') builder.calls.push({ name: item.name, given: parsed(String(item.arguments)) });
    if (item.type === 'message') addBlocks(item.content, builder);
  }
}

function addBlocks(blocks: unknown, builder: ReplyBuilder): void {
  for (const block of Array.isArray(blocks) ? blocks.filter(isObject) : []) {
    if (typeof block.text === 'string') builder.text += block.text;
    if (block.type === 'tool_use') builder.calls.push({ name: block.name, given: block.input });
  }
}

function addParts({ content }: JsonObject, builder: ReplyBuilder): void {
  const parts = isObject(content) && Array.isArray(content.parts) ? content.parts.filter(isObject) : [];
  for (const { text, functionCall: call } of parts) {
    if (typeof text === 'string') builder.text += text;
    if (isObject(call)) builder.calls.push({ name: call.name, given: call.args });
  }
}

/**
 * Returns the content of a toy reply's ids. The text ends before the request's stop string, and tool calls are parsed only if the request
 * has tools.
 */
export function contentOfIds(
  ids: readonly number[],
  { hasTools, stop }: { hasTools: boolean; stop: unknown },
): ReplyContent {
  const all = decode(ids);
  const whole = cutAtStop(all, stop)?.text ?? all;
  const found = hasTools ? [...whole.matchAll(/<tool_call>([^]*?)<\/tool_call>/g)] : [];
  const calls = found
    .map(([, inner]) => parseObject(inner ?? ''))
    .map((call) => ({ name: call?.name, given: call?.arguments }));
  return { text: found[0] ? whole.slice(0, found[0].index) : whole, calls };
}

export const isSame = (one: ReplyContent, other: ReplyContent): boolean => isDeepStrictEqual(one, other);

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}
