import type { JsonObject } from '../../json.ts';
import type { ResponsesRequest, Item, ItemContent } from './shape.ts';
import { asArguments, flatName } from './tools.ts';

type Assistant = { role: 'assistant'; content: string | null; reasoning?: string; tool_calls?: JsonObject[] };

/** Converts a conversation's items to chat messages. One reply comes as several items and becomes one message again. */
export function chatMessagesOf(input: ResponsesRequest['input']): JsonObject[] {
  if (typeof input === 'string') return [{ role: 'user', content: input }];
  const messages: JsonObject[] = [];
  let open: Assistant | null = null;
  for (const item of input) {
    if (item.type === 'unserved' || item.type === 'item_reference') continue;
    const part = assistantPart(item);
    if (!part) {
      open = null;
      messages.push(otherMessage(item));
    } else if (open && goesOn(open, part)) Object.assign(open, joined(open, part));
    else messages.push((open = part));
  }
  return messages;
}

/** True when the item belongs to the same reply as the one before: a reply has one text and no reasoning after it. */
function goesOn(open: Assistant, part: Assistant): boolean {
  if (part.reasoning !== undefined) return open.reasoning === undefined && open.content === null && !open.tool_calls;
  return part.content === null || open.content === null;
}

function joined(open: Assistant, part: Assistant): Partial<Assistant> {
  if (part.tool_calls) return { tool_calls: [...(open.tool_calls ?? []), ...part.tool_calls] };
  return part.reasoning === undefined ? { content: part.content } : { reasoning: part.reasoning };
}

type ShownItem = Exclude<Item, { type: 'unserved' | 'item_reference' }>;

function assistantPart(item: ShownItem): Assistant | null {
  if (item.type === 'message')
    return item.role === 'assistant' ? { role: 'assistant', content: textOf(item.content) } : null;
  if (item.type === 'function_call') return withCall(item.call_id, flatName(item.namespace, item.name), item.arguments);
  if (item.type === 'custom_tool_call') return withCall(item.call_id, item.name, asArguments(item.input));
  if (item.type !== 'reasoning') return null;
  const texts = item.content?.length ? item.content : (item.summary ?? []);
  return { role: 'assistant', content: null, reasoning: texts.map(({ text }) => text).join('') };
}

const withCall = (id: string, name: string, given: string): Assistant => ({
  role: 'assistant',
  content: null,
  tool_calls: [{ id, type: 'function', function: { name, arguments: given } }],
});

function otherMessage(item: ShownItem): JsonObject {
  if (item.type === 'message') return { role: item.role, content: chatContent(item.content) };
  if (item.type === 'function_call_output' || item.type === 'custom_tool_call_output')
    return { role: 'tool', tool_call_id: item.call_id, content: chatContent(item.output) };
  throw new Error(`an item of type ${item.type} cannot become a message`);
}

type ShownPart = Exclude<Exclude<ItemContent, string>[number], { type: 'unserved' }>;

const shownParts = (content: Exclude<ItemContent, string>): ShownPart[] =>
  content.filter((part) => part.type !== 'unserved');

function textOf(content: ItemContent): string {
  if (typeof content === 'string') return content;
  return shownParts(content)
    .map((part) => (part.type === 'input_image' ? '' : part.type === 'refusal' ? part.refusal : part.text))
    .join('');
}

function chatContent(content: ItemContent): string | JsonObject[] {
  if (typeof content === 'string') return content;
  const parts = shownParts(content);
  if (parts.length < 2 && parts.every((part) => part.type !== 'input_image')) return textOf(content);
  return parts.map((part) => {
    if (part.type !== 'input_image') return { type: 'text', text: part.type === 'refusal' ? part.refusal : part.text };
    return { type: 'image_url', image_url: { url: part.image_url, ...(part.detail ? { detail: part.detail } : {}) } };
  });
}
