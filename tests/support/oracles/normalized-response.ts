import { choicesOf } from '../../../store/calls/choices.ts';
import { isObject, parseObject, type JsonObject } from '../../../gateway/json.ts';
import { mergeDeltas } from './merge-deltas.ts';

/** An agent's answer as events, or as the one object of a whole reply, without what differs between servers. */
export type NormalizedResponse = { status: number; events: unknown[] };

export const normalizeResponse = async (reply: Response): Promise<NormalizedResponse> =>
  normalize(reply.status, await reply.text());

/** `besides` names more fields to leave out. */
export function normalize(status: number, text: string, besides: readonly string[] = []): NormalizedResponse {
  const own = new Set([...ITS_OWN, ...besides]);
  const data = text.startsWith('{')
    ? [text]
    : text.split('\n').flatMap((line) => (line.startsWith('data: ') && line !== 'data: [DONE]' ? [line.slice(6)] : []));
  const events = data.map(parseObject);
  // Several replies mix within a stream by chance, so they are sorted.
  const same = events.toSorted((a, b) => indexOf(a) - indexOf(b)).map((event) => shared(event, own));
  return { status, events: same.every(isObject) ? mergeDeltas(withCutItem(same)) : same };
}

/**
 * In OpenAI's protocol the last item of a response that was cut is incomplete too. vLLM calls it completed. `events.test.ts` of the protocol has the
 * gateway's own statuses.
 */
function withCutItem(events: readonly JsonObject[]): JsonObject[] {
  const last = events.at(-1);
  const response = isObject(last?.response) ? last.response : last;
  if (response?.object !== 'response' || response.status !== 'incomplete' || !Array.isArray(response.output))
    return [...events];
  const output = response.output.map((item, i, { length }) => (i === length - 1 ? incomplete(item) : item));
  const isDone = ({ type }: JsonObject): boolean => type === 'response.output_item.done';
  const ended = events.findLastIndex(isDone);
  return events.map((event, i) => {
    if (event === last)
      return isObject(last.response) ? { ...last, response: { ...response, output } } : { ...last, output };
    return i === ended ? { ...event, item: incomplete(event.item) } : event;
  });
}

const incomplete = (item: unknown): unknown => (isObject(item) ? { ...item, status: 'incomplete' } : item);

const indexOf = (event: JsonObject | null): number =>
  Number(choicesOf(event)[0]?.index ?? (event && Array.isArray(event.choices) ? Infinity : 0));

const ITS_OWN = new Set([
  // Ids and times.
  'id',
  'item_id',
  'call_id',
  'created',
  'created_at',
  'signature',
  'previous_response_id',
  // Fields that only vLLM has: of its process, its cache, and its own tools.
  'system_fingerprint',
  'cached_tokens',
  'cache_write_tokens',
  'tool_output_tokens',
  'service_tier',
  'prompt_token_ids',
  'token_ids',
  // Fields that vLLM leaves out, or that concern its own store.
  'store',
  'defer_loading',
  'sequence_number',
]);

/** Returns a value so that equal contents compare equal: null, absent and empty are the same. */
function shared(value: unknown, own: ReadonlySet<string>): unknown {
  if (Array.isArray(value)) return value.map((each) => shared(each, own));
  if (!isObject(value)) return value;
  const fields = Object.entries(value).filter(
    ([key, field]) =>
      !own.has(key) && field !== null && field !== undefined && !(Array.isArray(field) && field.length === 0),
  );
  const same = Object.fromEntries(fields.map(([key, field]) => [key, shared(field, own)]));
  // In OpenAI's protocol a response that was cut ends with an event of its own. vLLM calls it completed.
  const isCut = same.type === 'response.completed' && isObject(same.response) && same.response.status === 'incomplete';
  return isCut ? { ...same, type: 'response.incomplete' } : same;
}
