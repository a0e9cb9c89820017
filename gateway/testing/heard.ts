import { choicesOf } from '../../store/calls/choices.ts';
import { isObject, parseObject, type JsonObject } from '../json.ts';
import { inOnePiece } from './in-one-piece.ts';

/** What an agent was answered: its events, or the one object of a whole reply, without what is each server's own. */
export type Heard = { status: number; events: unknown[] };

export const hear = async (reply: Response): Promise<Heard> => heardOf(reply.status, await reply.text());

/** `besides`: fields that are left out too. */
export function heardOf(status: number, text: string, besides: readonly string[] = []): Heard {
  const own = new Set([...ITS_OWN, ...besides]);
  const data = text.startsWith('{') ? [text] : text.split('\n').flatMap((line) => (line.startsWith('data: ') && line !== 'data: [DONE]' ? [line.slice(6)] : []));
  const events = data.map(parseObject);
  // How several replies mix within a stream is chance.
  const same = events.toSorted((a, b) => indexOf(a) - indexOf(b)).map((event) => shared(event, own));
  return { status, events: same.every(isObject) ? inOnePiece(same) : same };
}

const indexOf = (event: JsonObject | null): number => Number(choicesOf(event)[0]?.index ?? (event && Array.isArray(event.choices) ? Infinity : 0));

const ITS_OWN = new Set([
  // Ids and times.
  'id', 'item_id', 'call_id', 'created', 'created_at', 'signature', 'previous_response_id',
  // What only vLLM says: of its process and its cache, and counts by turns of tools that it runs itself.
  'system_fingerprint', 'cached_tokens', 'cache_write_tokens', 'tool_output_tokens', 'service_tier', 'prompt_token_ids', 'token_ids',
  // What vLLM leaves out, or says of its own store.
  'store', 'defer_loading', 'sequence_number',
]);

/** What is equal: null, absent and empty are one. */
function shared(value: unknown, own: ReadonlySet<string>): unknown {
  if (Array.isArray(value)) return value.map((each) => shared(each, own));
  if (!isObject(value)) return value;
  const fields = Object.entries(value).filter(([key, field]) => !own.has(key) && field !== null && field !== undefined && !(Array.isArray(field) && field.length === 0));
  const same = Object.fromEntries(fields.map(([key, field]) => [key, shared(field, own)]));
  // A response that was cut ends by an event of its own in OpenAI's protocol; vLLM calls it completed.
  const isCut = same.type === 'response.completed' && isObject(same.response) && same.response.status === 'incomplete';
  return isCut ? { ...same, type: 'response.incomplete' } : same;
}
