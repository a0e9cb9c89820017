import { stringifyExact } from '../../../core/exact-json.ts';
import type { JsonObject } from '../../json.ts';
import { onlyChoice } from '../message-parts.ts';
import { Failure } from '../../failure.ts';
import type { RecordedCalls } from '../model-request.ts';
import { outputOf, placeOfItem } from './items.ts';
import { servedItem, type ResponsesRequest, type Item } from './shape.ts';
import type { NamedTool } from './tools.ts';

/** An item of a recorded reply. `item` is null for an id that adds nothing to another id's item. */
type RecordedItem = { item: Item | null; bytes: number };

/** Returns the input with the recorded items in place of references to their ids. One query reads them all. */
export async function withReferences(
  input: ResponsesRequest['input'],
  tools: readonly NamedTool[],
  recorded: RecordedCalls,
): Promise<ResponsesRequest['input']> {
  if (typeof input === 'string') return input;
  const callIds = new Set(
    input.flatMap((item) => (item.type === 'item_reference' ? (placeOfItem(item.id)?.callId ?? []) : [])),
  );
  if (!input.some(({ type }) => type === 'item_reference')) return input;
  const replies = callIds.size > 0 ? await recorded.replies([...callIds]) : new Map<string, JsonObject>();
  const known = new Map<string, RecordedItem>();
  return input.flatMap((item, i): Item[] => {
    if (item.type !== 'item_reference') return [item];
    const found = known.get(item.id) ?? recordedItem(item.id, replies, tools);
    if (!found) throw unknownItem(item.id, i);
    known.set(item.id, found);
    recorded.gain(found.bytes);
    return found.item ? [found.item] : [];
  });
}

/** Finds the item by its call and place. This request's tools decide the kind of a tool call's item; they may differ from the recorded call's. */
function recordedItem(
  id: string,
  replies: ReadonlyMap<string, JsonObject>,
  tools: readonly NamedTool[],
): RecordedItem | null {
  const named = placeOfItem(id);
  const reply = named && replies.get(named.callId);
  if (!reply) return null;
  const ofKind = outputOf(onlyChoice(reply), tools, named.callId).filter(
    ({ id: each }) => placeOfItem(String(each))?.kind === named.kind,
  );
  const found = ofKind[named.place];
  if (found) return { item: servedItem.parse(found), bytes: stringifyExact(found).length };
  // A streamed reply may have several texts, which the record joins under the id of the first. The other ids add nothing.
  return named.kind !== 'call' && ofKind.length > 0 ? { item: null, bytes: 0 } : null;
}

const unknownItem = (id: string, place: number) => {
  const item = `input.${place}`;
  return new Failure(
    400,
    'item_not_found',
    `${item}: this attempt of the trial has no item ${JSON.stringify(id.slice(0, 100))}`,
    { retryable: false, item },
  );
};
