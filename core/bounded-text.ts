/** The beginning says how a program was started, and the end why it ended, which is mostly what people look for. */
const HEAD_SHARE = 1 / 4;

/** Returns the text, or its beginning and its end with a line between them that says how many characters are left out. */
export function boundedText(text: string, maxCharacters: number): string {
  if (text.length <= maxCharacters) return text;
  const head = Math.floor(maxCharacters * HEAD_SHARE);
  const tail = maxCharacters - head;
  const left = text.length - head - tail;
  return `${text.slice(0, head)}\n[… ${left} characters left out …]\n${text.slice(-tail)}`.toWellFormed();
}
