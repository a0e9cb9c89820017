import type { KeepThinking } from '../../core/sampling-choices.ts';
import { isObject, type JsonObject } from '../json.ts';
import type { GenerationRequest } from './engine.ts';
import type { Replica } from './replica.ts';

const CALL = { id: 'call', type: 'function', function: { name: 'f', arguments: '{}' } };
/** A reply with thinking, and what may follow it. */
const AFTER: Record<'user' | 'result', (reasoning: string) => JsonObject[]> = {
  user: (reasoning) => [
    { role: 'user', content: 'x' },
    { role: 'assistant', content: 'y', reasoning },
    { role: 'user', content: 'x' },
  ],
  result: (reasoning) => [
    { role: 'user', content: 'x' },
    { role: 'assistant', content: 'y', reasoning, tool_calls: [CALL] },
    { role: 'tool', tool_call_id: 'call', content: 'x' },
  ],
};
/** The fields that a template gets besides messages and tools. */
const TEMPLATE_FIELDS = ['chat_template', 'chat_template_kwargs', 'reasoning_effort'];

/** Returns the ids of a chat's prompt, or null when the engine refuses to render it. */
type Render = (body: JsonObject, signal: AbortSignal) => Promise<number[] | null>;

/**
 * True when the recorded ids, with the thinking that the model sampled, stay in the prompt. With `as_template` the model's chat template
 * decides, which is asked whether it keeps earlier thinking before such messages. No rule depends on what the client sends back.
 */
export async function staysAsSampled(
  { keepThinking, hasThinking, parent }: Pick<GenerationRequest, 'keepThinking' | 'hasThinking' | 'parent'>,
  body: JsonObject,
  { replica, render }: { replica: Pick<Replica, 'answer'>; render: Render },
): Promise<boolean> {
  if (!hasThinking || keepThinking === 'always') return true;
  if (keepThinking === 'never') return false;
  const added: unknown[] = Array.isArray(body.messages) ? body.messages.slice(parent?.messages ?? 0) : [];
  const kind = added.some((message) => isObject(message) && message.role === 'user') ? 'user' : 'result';
  const fields = Object.fromEntries(TEMPLATE_FIELDS.flatMap((name) => (name in body ? [[name, body[name]]] : [])));
  return replica.answer(`keeps_thinking:${kind}:${JSON.stringify(fields)}`, async (signal) => {
    const [one, other] = await Promise.all(
      ['a', 'b b'].map((reasoning) => render({ ...fields, messages: AFTER[kind](reasoning) }, signal)),
    );
    return !one || !other || String(one) !== String(other);
  });
}

/**
 * Returns messages without the thinking that a client sent back: of all of them with `never`, and with `always` of those whose recorded
 * ids, thinking included, take their place.
 */
export function withoutThinking(messages: readonly unknown[], keep: KeepThinking, recorded: number): unknown[] {
  const until = keep === 'never' ? messages.length : keep === 'always' ? recorded : 0;
  return messages.map((message, i) => {
    if (i >= until || !isObject(message) || message.role !== 'assistant') return message;
    const { reasoning: _, reasoning_content: __, ...rest } = message;
    return rest;
  });
}
