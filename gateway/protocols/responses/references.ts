import { onlyChoice } from '../said.ts';
import { Failure } from '../../failure.ts';
import type { RecordedCalls } from '../../chat/request.ts';
import { callOfItem, outputOf } from './items.ts';
import { servedItem, type Asked, type Item } from './shape.ts';
import type { NamedTool } from './tools.ts';

/** Returns the input with the recorded items in place of references to their ids. One query reads them all. */
export async function withReferences(input: Asked['input'], tools: readonly NamedTool[], recorded: RecordedCalls): Promise<Asked['input']> {
  if (typeof input === 'string') return input;
  const callIds = new Set(input.flatMap((item) => (item.type === 'item_reference' ? (callOfItem(item.id) ?? []) : [])));
  if (!input.some(({ type }) => type === 'item_reference')) return input;
  const replies = callIds.size > 0 ? await recorded.replies([...callIds]) : new Map();
  return input.flatMap((item, i): Item[] => {
    if (item.type !== 'item_reference') return [item];
    const callId = callOfItem(item.id);
    const reply = callId === null ? undefined : replies.get(callId);
    if (callId === null || !reply) throw unknownItem(item.id, i);
    const found = outputOf(onlyChoice(reply), tools, callId).find(({ id }) => id === item.id);
    // A text that a stream gave in several items is recorded as one item, which the first of those ids names.
    return found ? [servedItem.parse(found)] : [];
  });
}

const unknownItem = (id: string, place: number) => {
  const item = `input.${place}`;
  return new Failure(400, 'item_not_found', `${item}: this attempt of the trial has no item ${JSON.stringify(id.slice(0, 100))}`, { retryable: false, item });
};
