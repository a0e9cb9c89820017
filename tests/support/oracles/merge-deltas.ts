import { isDeepStrictEqual } from 'node:util';
import { choicesOf } from '../../../store/calls/choices.ts';
import { isObject, type JsonObject } from '../../../gateway/json.ts';

/** Joins consecutive pieces of text, because how many tokens a server sends at once depends on timing. */
export function mergeDeltas(events: readonly JsonObject[]): JsonObject[] {
  const joined: JsonObject[] = [];
  for (const event of events.flatMap(apart)) {
    const last = joined.at(-1);
    const [before, next] = [last && pieceOf(last), pieceOf(event)];
    if (before && next && isDeepStrictEqual(before.with(''), next.with('')))
      joined.splice(-1, 1, next.with(before.text + next.text));
    else joined.push(event);
  }
  return joined.filter((event) => !isEmptyInput(event));
}

/**
 * True for a piece that says that a tool gets no arguments, as a Messages block says at its start. vLLM leaves it out when it comes in one
 * piece with the tool's name.
 */
const isEmptyInput = ({ delta }: JsonObject): boolean =>
  isObject(delta) && delta.type === 'input_json_delta' && delta.partial_json === '{}';

type Piece = { text: string; with: (text: string) => JsonObject };

/** Returns an event's text, and the event with another text. */
function pieceOf(event: JsonObject): Piece | null {
  const { type, delta } = event;
  if (typeof delta === 'string' && String(type).endsWith('.delta'))
    return { text: delta, with: (text) => ({ ...event, delta: text }) };
  const within = isObject(delta) && pieceIn(delta, ['text', 'thinking', 'partial_json']);
  if (within) return { text: within.text, with: (text) => ({ ...event, delta: within.with(text) }) };
  const [choice, ...more] = choicesOf(event);
  if (!choice || more.length > 0) return null;
  const said = isObject(choice.delta) && pieceIn(choice.delta, ['content', 'reasoning']);
  if (said)
    return { text: said.text, with: (text) => ({ ...event, choices: [{ ...choice, delta: said.with(text) }] }) };
  const own = pieceIn(choice, ['text']);
  return own && { text: own.text, with: (text) => ({ ...event, choices: [own.with(text)] }) };
}

function pieceIn(fields: JsonObject, names: readonly string[]): Piece | null {
  const name = names.find((each) => typeof fields[each] === 'string');
  return name === undefined ? null : { text: String(fields[name]), with: (text) => ({ ...fields, [name]: text }) };
}

/** Splits a chunk that has text and the reply's end into one event for each. */
function apart(event: JsonObject): JsonObject[] {
  const [choice] = choicesOf(event);
  const piece = pieceOf(event);
  if (!choice?.finish_reason || !piece?.text || choice.message) return [event];
  const { finish_reason: _, stop_reason: __, ...open } = choice;
  const text = pieceOf({ ...event, choices: [open] });
  return text ? [text.with(piece.text), piece.with('')] : [event];
}
