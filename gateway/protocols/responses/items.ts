import { isObject, type JsonObject } from '../../json.ts';
import { asProtocolId, callOfId } from '../call-ids.ts';
import { parseMessage, type ToolCall } from '../message-parts.ts';
import { inputOf, type NamedTool } from './tools.ts';

const PREFIXES = { message: 'msg', reasoning: 'rs', function_call: 'fc', custom_tool_call: 'ctc' };
export type ItemType = keyof typeof PREFIXES;

/**
 * Builds an item's id from its call's id and its position among the items of its kind. A replayed reply has the same id, and so has a
 * stream, where items of other kinds may stand between. So a later request can name the item by it.
 */
export const itemId = (type: ItemType, callId: string, place: number): string =>
  `${asProtocolId(PREFIXES[type], callId)}_${place}`;

const ITEM_ID = new RegExp(`^(${Object.values(PREFIXES).join('|')})_([0-9a-f]{32})_(\\d{1,4})$`);

/** `kind`: items of one kind are counted together. */
export type ItemPlace = { callId: string; kind: 'message' | 'reasoning' | 'call'; place: number };
const KINDS: Record<string, ItemPlace['kind']> = { msg: 'message', rs: 'reasoning', fc: 'call', ctc: 'call' };

/** Returns the call and place of the item with this id, or null when the id cannot be one of ours. */
export function placeOfItem(id: string): ItemPlace | null {
  const [, prefix = '', call, place] = ITEM_ID.exec(id) ?? [];
  const kind = KINDS[prefix];
  const callId = callOfId(prefix, `${prefix}_${call}`);
  return kind === undefined || callId === null ? null : { callId, kind, place: Number(place) };
}

export const textPart = (text: string, logprobs: unknown): JsonObject => ({
  type: 'output_text',
  text,
  annotations: [],
  logprobs,
});

export const messageItem = (id: string, content: JsonObject[], status: string): JsonObject => ({
  type: 'message',
  id,
  role: 'assistant',
  status,
  content,
});

export const reasoningItem = (id: string, text: string | null, status: string): JsonObject => ({
  type: 'reasoning',
  id,
  summary: [],
  ...(text === null ? {} : { content: [{ type: 'reasoning_text', text }] }),
  status,
});

/** Builds a tool call as its agent knows it. `tool` is null for a name that the agent did not declare. */
export function callItem({
  id,
  call,
  tool,
  given,
  status,
}: {
  id: string;
  call: ToolCall;
  tool: NamedTool | null;
  given: string;
  status: string;
}): JsonObject {
  if (tool?.kind === 'custom')
    return { type: 'custom_tool_call', id, call_id: call.id, name: call.name, input: inputOf(given) };
  const namespace = tool?.namespace ?? null;
  return {
    type: 'function_call',
    id,
    call_id: call.id,
    name: tool?.shown.name ?? call.name,
    ...(namespace === null ? {} : { namespace }),
    arguments: given,
    status,
  };
}

/** Converts a whole chat choice to a response's output. The last item of a reply that its length ended is incomplete. */
export function outputOf(choice: JsonObject, tools: readonly NamedTool[], callId: string): JsonObject[] {
  const { reasoning, text, tools: calls } = parseMessage(choice.message);
  const items: ((status: string) => JsonObject)[] = [];
  if (reasoning !== '') items.push((status) => reasoningItem(itemId('reasoning', callId, 0), reasoning, status));
  if (text !== '')
    items.push((status) =>
      messageItem(itemId('message', callId, 0), [textPart(text, logprobsOf(choice) ?? null)], status),
    );
  for (const [place, call] of calls.entries()) {
    const tool = tools.find(({ name }) => name === call.name) ?? null;
    const type = tool?.kind === 'custom' ? 'custom_tool_call' : 'function_call';
    const id = itemId(type, callId, place);
    items.push((status) => callItem({ id, call, tool, given: call.arguments, status }));
  }
  const isCut = choice.finish_reason === 'length';
  return items.map((item, i) => item(isCut && i === items.length - 1 ? 'incomplete' : 'completed'));
}

/** Returns the log-probability of each token, or undefined unless the agent asks for them. */
export function logprobsOf({ logprobs }: JsonObject): JsonObject[] | undefined {
  if (!isObject(logprobs) || !Array.isArray(logprobs.content)) return undefined;
  return logprobs.content
    .filter(isObject)
    .map(({ token, logprob, bytes, top_logprobs }) => ({ token, logprob, bytes, top_logprobs }));
}
