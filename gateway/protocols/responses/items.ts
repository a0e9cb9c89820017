import { isObject, type JsonObject } from '../../json.ts';
import { asProtocolId } from '../call-ids.ts';
import { saidIn, type ToolCall } from '../said.ts';
import { inputOf, type NamedTool } from './tools.ts';

const PREFIXES = { message: 'msg', reasoning: 'rs', function_call: 'fc', custom_tool_call: 'ctc' };
export type ItemType = keyof typeof PREFIXES;

/** The same in a reply that is replayed: the call's id, and the item's place in it. */
export const itemId = (type: ItemType, callId: string, place: number): string => `${asProtocolId(PREFIXES[type], callId)}_${place}`;

export const textPart = (text: string, logprobs: unknown): JsonObject => ({ type: 'output_text', text, annotations: [], logprobs });

export const messageItem = (id: string, content: JsonObject[], status: string): JsonObject => ({ type: 'message', id, role: 'assistant', status, content });

export const reasoningItem = (id: string, text: string | null, status: string): JsonObject => ({
  type: 'reasoning',
  id,
  summary: [],
  ...(text === null ? {} : { content: [{ type: 'reasoning_text', text }] }),
  status,
});

/** A tool call as its agent knows it: `tool` is null for a name that it did not bring. */
export function callItem({ id, call, tool, given, status }: { id: string; call: ToolCall; tool: NamedTool | null; given: string; status: string }): JsonObject {
  if (tool?.kind === 'custom') return { type: 'custom_tool_call', id, call_id: call.id, name: call.name, input: inputOf(given) };
  const namespace = tool?.namespace ?? null;
  return { type: 'function_call', id, call_id: call.id, name: tool?.shown.name ?? call.name, ...(namespace === null ? {} : { namespace }), arguments: given, status };
}

/** A whole chat choice as a response's output. */
export function outputOf(choice: JsonObject, tools: readonly NamedTool[], callId: string): JsonObject[] {
  const { reasoning, text, tools: calls } = saidIn(choice.message);
  const items: JsonObject[] = [];
  const idFor = (type: ItemType) => itemId(type, callId, items.length);
  if (reasoning !== '') items.push(reasoningItem(idFor('reasoning'), reasoning, 'completed'));
  if (text !== '') items.push(messageItem(idFor('message'), [textPart(text, logprobsOf(choice) ?? null)], 'completed'));
  for (const call of calls) {
    const tool = tools.find(({ name }) => name === call.name) ?? null;
    const type = tool?.kind === 'custom' ? 'custom_tool_call' : 'function_call';
    items.push(callItem({ id: idFor(type), call, tool, given: call.arguments, status: 'completed' }));
  }
  return items;
}

/** Of each token; absent unless the agent asks for them. */
export function logprobsOf({ logprobs }: JsonObject): JsonObject[] | undefined {
  if (!isObject(logprobs) || !Array.isArray(logprobs.content)) return undefined;
  return logprobs.content.filter(isObject).map(({ token, logprob, bytes, top_logprobs }) => ({ token, logprob, bytes, top_logprobs }));
}
