/** The ids of a question. The template depends only on the number of messages: a question has 40 ids, a reply as many as the engine's mode says. */
export const QUESTION = [1, 4093, 198, ...Array.from({ length: 40 }, (_, i) => 500 + i), 2, 198];
const PROMPT = [1, 520, 9531, 198];
const CLOSING = [2, 198];

const known = new Map<string, number[]>();

/** Returns the ids of this number of messages, questions and replies in turn. With `open` the prompt of the next reply follows. */
export function conversationIds(messages: number, { open = true, replyTokens = 64 } = {}): number[] {
  const key = `${messages} ${open} ${replyTokens}`;
  const made = known.get(key);
  if (made) return made;
  const ids = Array.from({ length: messages }, (_, i) => (i % 2 === 0 ? QUESTION : replyIds(replyTokens))).flat();
  if (open) ids.push(...PROMPT);
  known.set(key, ids);
  return ids;
}

const replyIds = (tokens: number): number[] => [
  ...PROMPT,
  ...Array.from({ length: tokens }, (_, i) => 9000 + (i % 500)),
  ...CLOSING,
];
