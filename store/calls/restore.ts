import { isObject, type JsonObject } from '../json.ts';
import { contentOf, whole } from './content.ts';
import { repliesOf, textOf } from './outline.ts';
import { restorePrompts } from './restore-ids.ts';
import { shortRequest, type Stored } from './shorten.ts';

type Row = Parameters<typeof restorePrompts>[0][number] & { request: Uint8Array; response: Uint8Array | null };
export type Restored<R extends Row> = Omit<R, 'request' | 'response' | 'promptTokenIds'> & {
  request: JsonObject;
  response: JsonObject | null;
  promptTokenIds: Int32Array | null;
};

/** Calls of one attempt as they were before they were shortened: all of them, in the order of their commits. */
export function restoreCalls<R extends Row>(rows: readonly R[]): Restored<R>[] {
  const prompts = restorePrompts(rows);
  const contents = new Map<string, unknown>();
  const earlier = new Map<string, { lists: Record<string, unknown[]>; text: string }>();
  const learn = (core: unknown): unknown => {
    contents.set(contentOf(core).digest, core);
    return core;
  };
  const valueOf = ({ is, as, and }: Stored): unknown => {
    if (as !== undefined && !contents.has(as)) throw new Error(`no call of the attempt brought the content ${as}`);
    return whole(as === undefined ? learn(is) : contents.get(as), and);
  };
  return rows.map((stored, i) => {
    const { request: shortened, response: said, promptTokenIds: _rest, ...row } = stored;
    const base = stored.baseId === null ? undefined : earlier.get(stored.baseId);
    const short = shortRequest.parse(parseStored(shortened));
    const response = said && parseStored(said);
    const lists: Record<string, unknown[]> = {};
    for (const [name, [shared, rest]] of Object.entries(short.lists)) lists[name] = [...(base?.lists[name] ?? []).slice(0, shared), ...rest.map(valueOf)];
    const prompt = short.prompt ? { prompt: (base?.text ?? '').slice(0, short.prompt[0]) + short.prompt[1] } : {};
    for (const { core } of repliesOf(response)) learn(core);
    earlier.set(stored.id, { lists, text: (prompt.prompt ?? '') + textOf(response) });
    const fields = valueOf(short.fields);
    const request = { ...(isObject(fields) ? fields : {}), ...lists, ...prompt };
    return { ...row, request, response, promptTokenIds: prompts[i] ?? null };
  });
}

export function parseStored(bytes: Uint8Array): JsonObject {
  const value: unknown = JSON.parse(new TextDecoder().decode(bytes));
  if (!isObject(value)) throw new Error('a stored call is not a JSON object');
  return value;
}
