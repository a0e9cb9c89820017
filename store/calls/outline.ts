import { isObject, type JsonObject } from '../json.ts';
import { choicesOf } from './choices.ts';
import { contentOf, type Content } from './content.ts';

/** A request by its contents: its lists of objects (messages, tools) item by item, and its other fields as one. */
export type Outline = {
  fields: Content;
  lists: Record<string, Content[]>;
  /** A text completion's prompt, which has no items. */
  prompt: string | null;
};

export function outlineOf(request: JsonObject): Outline {
  const lists: Outline['lists'] = {};
  const fields: JsonObject = {};
  let prompt: string | null = null;
  for (const [name, value] of Object.entries(request)) {
    if (Array.isArray(value) && value.some(isObject)) lists[name] = value.map(contentOf);
    else if (name === 'prompt' && typeof value === 'string') prompt = value;
    else fields[name] = value;
  }
  return { fields: contentOf(fields), lists, prompt };
}

/** How an item stands in a list: which content, with which empty fields. */
export const itemKey = ({ digest, empty }: Content): string => (empty ? digest + JSON.stringify(empty) : digest);

/** The contents of a reply that a later request may send back: its choices' messages. */
export const repliesOf = (response: JsonObject | null): Content[] =>
  choicesOf(response).flatMap(({ message }) => (isObject(message) ? [contentOf(message)] : []));

/** What a text completion said. */
export function textOf(response: JsonObject | null): string {
  const text = choicesOf(response)[0]?.text;
  return typeof text === 'string' ? text : '';
}
