/** A template over messages of which only the number is looked at: a question has 40 ids, a reply as many as the engine says. */
export const QUESTION = [1, 4093, 198, ...Array.from({ length: 40 }, (_, i) => 500 + i), 2, 198];
const PROMPT = [1, 520, 9531, 198];
const CLOSING = [2, 198];

const known = new Map<string, number[]>();

/** The ids of so many messages, a question and a reply by turns. With `open` the prompt of the next reply follows. */
export function conversationIds(messages: number, { open = true, replyTokens = 64 } = {}): number[] {
  const key = `${messages} ${open} ${replyTokens}`;
  const made = known.get(key);
  if (made) return made;
  const ids = Array.from({ length: messages }, (_, i) => (i % 2 === 0 ? QUESTION : replyIds(replyTokens))).flat();
  if (open) ids.push(...PROMPT);
  known.set(key, ids);
  return ids;
}

const replyIds = (tokens: number): number[] => [...PROMPT, ...Array.from({ length: tokens }, (_, i) => 9000 + (i % 500)), ...CLOSING];
