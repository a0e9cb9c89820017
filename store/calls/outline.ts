import { isObject, type JsonObject } from '../../core/json.ts';
import { choicesOf } from './choices.ts';
import { contentOf, type Content } from './content.ts';

/** The contents of a request: its messages and tools item by item, and its other fields as one value. */
export type Outline = {
  fields: Content;
  lists: Record<string, Content[]>;
  /** A text completion's prompt, which has no items. */
  prompt: string | null;
};

/** The lists that grow from call to call, which are stored item by item. Any other list is one value: hashing its items would cost its sender nothing and us much. */
export const LISTS = new Set(['messages', 'tools', 'left_out']);

export function outlineOf(request: JsonObject): Outline {
  const lists: Outline['lists'] = {};
  // Uses entries, because an assignment to `__proto__` would lose the field.
  const fields: [string, unknown][] = [];
  let prompt: string | null = null;
  for (const [name, value] of Object.entries(request)) {
    if (LISTS.has(name) && Array.isArray(value) && value.some(isObject)) lists[name] = value.map(contentOf);
    else if (name === 'prompt' && typeof value === 'string') prompt = value;
    else fields.push([name, value]);
  }
  return { fields: contentOf(Object.fromEntries(fields)), lists, prompt };
}

/** The stored value of a refused request. Its digest and size have their own columns. */
export const nothingOfRequest = (): Outline => outlineOf({});

/** Returns a key that two items of a list share exactly when their contents and their empty fields are equal. */
export const itemKey = ({ digest, empty }: Content): string => (empty ? digest + JSON.stringify(empty) : digest);

/** Returns the contents of a reply that a later request may send back: the messages of its choices. */
export const repliesOf = (response: JsonObject | null): Content[] =>
  choicesOf(response).flatMap(({ message }) => (isObject(message) ? [contentOf(message)] : []));

/** Returns the text of a text completion's reply. */
export function textOf(response: JsonObject | null): string {
  const text = choicesOf(response)[0]?.text;
  return typeof text === 'string' ? text : '';
}
