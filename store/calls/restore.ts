import { parseExact } from '../../core/exact-json.ts';
import { isObject, type JsonObject } from '../../core/json.ts';
import { contentOf, withEmptyFields } from './content.ts';
import { LISTS, outlineOf, repliesOf, textOf } from './outline.ts';
import { restorePrompts } from './restore-ids.ts';
import { shortRequest, type StoredContent } from './shorten.ts';

type TextRow = { id: string; baseId: string | null; request: Uint8Array; response: Uint8Array | null };
type Row = Parameters<typeof restorePrompts>[0][number] & TextRow;
export type Texts = { request: JsonObject; response: JsonObject | null };
export type RestoredCall<R extends Row> = Omit<R, 'request' | 'response' | 'promptTokenIds'> &
  Texts & { promptTokenIds: Int32Array | null };

/** Restores the calls of one attempt as they were before they were shortened. `rows` are all of its calls, in the order of their commits. */
export function restoreCalls<R extends Row>(rows: readonly R[]): RestoredCall<R>[] {
  const prompts = restorePrompts(rows);
  const restore = restorer();
  return rows.map((stored, i) => {
    const { request: _request, response: _response, promptTokenIds: _rest, ...row } = stored;
    return { ...row, ...restore(stored), promptTokenIds: prompts[i] ?? null };
  });
}

/** Thrown when a call refers to a content that no call read before it has. */
export class MissingContent extends Error {}

/**
 * Returns a function that restores one call after the other. It must be called in the order of their commits.
 * @throws MissingContent
 */
export function restorer(): (row: TextRow) => Texts {
  const contents = new Map<string, unknown>();
  const earlier = new Map<string, { lists: Record<string, unknown[]>; text: string }>();
  const learn = (core: unknown): unknown => {
    contents.set(contentOf(core).digest, core);
    return core;
  };
  const valueOf = ({ is, as, and }: StoredContent): unknown => {
    if (as !== undefined && !contents.has(as))
      throw new MissingContent(`no call of the attempt brought the content ${as}`);
    return withEmptyFields(as === undefined ? learn(is) : contents.get(as), and);
  };
  return ({ id, baseId, request: shortened, response: said }) => {
    const base = baseId === null ? undefined : earlier.get(baseId);
    const short = shortRequest.parse(parseStored(shortened));
    const response = said && parseStored(said);
    const lists: Record<string, unknown[]> = {};
    for (const [name, [shared, rest]] of Object.entries(short.lists))
      lists[name] = [...(base?.lists[name] ?? []).slice(0, shared), ...rest.map(valueOf)];
    const prompt = short.prompt ? { prompt: (base?.text ?? '').slice(0, short.prompt[0]) + short.prompt[1] } : {};
    for (const { core } of repliesOf(response)) learn(core);
    earlier.set(id, { lists, text: (prompt.prompt ?? '') + textOf(response) });
    const fields = valueOf(short.fields);
    const request = { ...(isObject(fields) ? fields : {}), ...lists, ...prompt };
    // The first release also stored other lists item by item. A later call names the fields as they are stored now.
    if (Object.keys(lists).some((name) => !LISTS.has(name))) learn(outlineOf(request).fields.core);
    return { request, response };
  };
}

export function parseStored(bytes: Uint8Array): JsonObject {
  const value = parseExact(new TextDecoder().decode(bytes));
  if (!isObject(value)) throw new Error('a stored call is not a JSON object');
  return value;
}
