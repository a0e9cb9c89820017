import { stringifyExact } from '../../../core/exact-json.ts';
import type { JsonObject } from '../../json.ts';
import { userTurn } from '../user-turn.ts';
import type { Block, CountRequest, Message, ShownBlock } from './shape.ts';

/** Claude Code begins its system prompt with this line. It differs in each request, so no conversation would continue from another. */
const BILLING = 'x-anthropic-billing-header';

/** Converts a conversation to chat messages: the system prompt first, and tools' results as messages of their own. */
export function chatMessagesOf({ system, messages }: Pick<CountRequest, 'system' | 'messages'>): JsonObject[] {
  return [...systemMessages(system ?? ''), ...messages.flatMap(chatMessages)];
}

function systemMessages(content: string | readonly { type: string; text?: unknown }[]): JsonObject[] {
  const texts =
    typeof content === 'string' ? [content] : content.map(({ text }) => (typeof text === 'string' ? text : ''));
  const prompt = texts.filter((text) => !text.startsWith(BILLING)).join('');
  return prompt === '' ? [] : [{ role: 'system', content: prompt }];
}

function chatMessages({ role, content }: Message): JsonObject[] {
  if (role === 'system') return systemMessages(content);
  if (typeof content === 'string') return [{ role, content }];
  return role === 'assistant' ? [assistantMessage(content)] : userMessages(content);
}

/** Builds the message as a chat reply has it, with one text, its reasoning and its tool calls, so that it equals the recorded reply. */
function assistantMessage(blocks: readonly Block[]): JsonObject {
  const texts = blocks.flatMap((block) => (block.type === 'text' ? [block.text ?? ''] : []));
  const reasoning = blocks.flatMap((block) => (block.type === 'thinking' ? [block.thinking ?? ''] : [])).join('');
  const calls = blocks.flatMap((block) =>
    block.type === 'tool_use'
      ? [{ id: block.id, type: 'function', function: { name: block.name, arguments: argumentsOf(block.input) } }]
      : [],
  );
  return {
    role: 'assistant',
    content: texts.length > 0 || calls.length === 0 ? texts.join('') : null,
    ...(reasoning === '' ? {} : { reasoning }),
    ...(calls.length > 0 ? { tool_calls: calls } : {}),
  };
}

/** Arguments that were not JSON come back as a text. */
const argumentsOf = (input: unknown): string =>
  typeof input === 'string' ? input : input === undefined ? '{}' : stringifyExact(input);

function userMessages(blocks: readonly Block[]): JsonObject[] {
  const results = blocks.flatMap((block) => (block.type === 'tool_result' ? toolMessages(block) : []));
  const parts = blocks.flatMap((block) => (block.type === 'text' || block.type === 'image' ? chatParts(block) : []));
  // A message that holds only unserved blocks stays, because a conversation without the agent's last message is refused.
  if (parts.length === 0)
    return results.length === 0 && blocks.some(({ type }) => type === 'unserved')
      ? [{ role: 'user', content: '' }]
      : results;
  return userTurn(results, parts);
}

/** Converts a tool's result. Found tools follow its text as a message of their own. */
function toolMessages({ tool_use_id: tool_call_id, content }: Extract<Block, { type: 'tool_result' }>): JsonObject[] {
  const shown = typeof content === 'string' ? [{ type: 'text' as const, text: content }] : (content ?? []);
  const text = shown.flatMap((part) => (part.type === 'text' ? [part.text ?? ''] : [])).join('\n');
  const parts = shown.flatMap((part) => (part.type === 'text' || part.type === 'image' ? chatParts(part) : []));
  const isText = parts.every(({ type }) => type === 'text');
  const found = shown
    .flatMap((part) => (part.type === 'tool_reference' ? [part.tool_name || part.name || ''] : []))
    .filter(Boolean);
  return [
    ...(found.length > 0 && parts.length === 0 ? [] : [{ role: 'tool', tool_call_id, content: isText ? text : parts }]),
    ...(found.length > 0
      ? [{ role: 'tool', tool_call_id, content: found.map((name) => ({ type: 'tool_reference', name })) }]
      : []),
  ];
}

function chatParts(part: Extract<ShownBlock, { type: 'text' | 'image' }>): JsonObject[] {
  if (part.type === 'text') return part.text ? [{ type: 'text', text: part.text }] : [];
  const { source } = part;
  return [
    {
      type: 'image_url',
      image_url: { url: source.type === 'url' ? source.url : `data:${source.media_type};base64,${source.data}` },
    },
  ];
}
