import type { RecordedTurn } from '../conversations/conversations.ts';
import type { GenerationRequest } from './engine.ts';

/** An engine's tokenizer. Its text of ids has special tokens, its ids of a text have none. Null when it cannot be asked. */
export type Tokenizer = {
  detokenize: (ids: number[]) => Promise<string | null>;
  tokenize: (text: string) => Promise<number[] | null>;
};

/**
 * Returns the prompt of a text completion that goes on from a recorded turn: its ids followed by the ids of the added text. Returns null
 * when it continues none.
 */
export async function continueText(
  { parent, ambiguousParents }: Pick<GenerationRequest, 'parent' | 'ambiguousParents'>,
  text: unknown,
  tokenizer: Tokenizer,
): Promise<{ prompt: number[]; turn: RecordedTurn } | null> {
  if (!parent || typeof text !== 'string') return null;
  const after = text.slice(parent.text.length);
  const found = await findStopped([parent, ...ambiguousParents], after, tokenizer);
  if (!found) return null;
  const added = after.slice(found.stopped.length);
  const ids = added === '' ? [] : await tokenizer.tokenize(added);
  return ids && { prompt: [...Array.from(found.turn.tokenIds), ...ids], turn: found.turn };
}

/** Returns, of the turns with the same text, the one whose ids continue as the agent did. */
async function findStopped(
  turns: readonly RecordedTurn[],
  after: string,
  tokenizer: Tokenizer,
): Promise<{ turn: RecordedTurn; stopped: string } | null> {
  for (const turn of turns) {
    const stopped = await stoppedText(turn, tokenizer);
    if (stopped !== null && after.startsWith(stopped)) return { turn, stopped };
  }
  return null;
}

/** Returns the text of the ids after a stop string, which the reply leaves out. An agent that continues the text writes that string itself. */
async function stoppedText({ tokenIds, stopped }: RecordedTurn, { detokenize }: Tokenizer): Promise<string | null> {
  if (!stopped) return '';
  const text = await detokenize(Array.from(tokenIds.subarray(-stopped.tokens)));
  return text === null ? null : textFrom(text, stopped);
}

/** Numbers of characters to compare: of the text, of the detokenized text with its special tokens, and of the last tokens. */
const [COMPARED, SEARCHED, TAIL] = [16, 512, 256];

/** Returns what follows the text from its stop string on. `full` may contain special tokens that the text leaves out. */
export function textFrom(full: string, { text, by }: { text: string; by: string }): string | null {
  const before = text.slice(-COMPARED);
  // The stop string ended within the last tokens.
  for (let at = full.indexOf(by, full.length - by.length - TAIL); at >= 0; at = full.indexOf(by, at + 1)) {
    if (endsAs(full.slice(Math.max(0, at - SEARCHED), at), before)) return full.slice(at);
  }
  return null;
}

/** True when `full` ends with `text`, ignoring special tokens. */
function endsAs(full: string, text: string): boolean {
  const tried = new Set<number>();
  const fits = (end: number, left: number): boolean => {
    const state = end * (COMPARED + 1) + left;
    if (left === 0 || tried.has(state)) return left === 0;
    tried.add(state);
    if (end > 0 && full[end - 1] === text[left - 1] && fits(end - 1, left - 1)) return true;
    const special = specialBefore(full, end);
    return special > 0 && fits(end - special, left);
  };
  return fits(full.length, text.length);
}

const LONGEST = 64;
const OPENINGS: Record<string, string> = { '>': '<', ']': '[' };

/** Returns the length of the special token that ends there, in the forms of vocabularies (`<|im_start|>`, `</s>`, `[INST]`), or 0. */
function specialBefore(full: string, end: number): number {
  const closing = full[end - 1] ?? '';
  const opening = OPENINGS[closing];
  if (opening === undefined) return 0;
  const at = full.lastIndexOf(opening, end - 1);
  const within = at < 0 || end - at > LONGEST ? '' : full.slice(at + 1, end - 1);
  return within === '' || within.includes(closing) || /\s/.test(within) ? 0 : end - at;
}
