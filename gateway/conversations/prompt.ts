import { startsWith } from '../../core/token-ids.ts';

export type RenderedPrompts = {
  /** A recorded turn's prompt and completion. */
  recorded: ArrayLike<number>;
  /** The conversation up to that turn's reply, as the template writes it, without a generation prompt. */
  history: ArrayLike<number>;
  /** The whole request, as the template writes it. */
  full: ArrayLike<number>;
  /** The ids that the template writes after a reply: the end of the turn and its tail. */
  closing: ArrayLike<number>;
};

/**
 * Returns the recorded ids, the rest of the turn's closing, and what the request adds to the history. Returns null when the template writes
 * the history differently once something follows it, because then nothing can be continued exactly.
 */
export function continuePrompt({ recorded, history, full, closing }: RenderedPrompts): number[] | null {
  if (closing.length === 0 || !startsWith(full, history) || !endsWith(history, closing, closing.length)) return null;
  let sampled = closing.length;
  while (sampled > 0 && !endsWith(recorded, closing, sampled)) sampled--;
  return [...Array.from(recorded), ...Array.from(closing).slice(sampled), ...Array.from(full).slice(history.length)];
}

/** True when `ids` end with the first `count` of `closing`. */
function endsWith(ids: ArrayLike<number>, closing: ArrayLike<number>, count: number): boolean {
  if (ids.length < count) return false;
  for (let i = 0; i < count; i++) if (ids[ids.length - count + i] !== closing[i]) return false;
  return true;
}
