/** A text of JSON, a piece of white space, or a sign. */
const PIECES = /"(?:[^"\\]|\\.)*"|\s+|[{}[\],:]|[^\s{}[\],:"]+/g;

/** Indents JSON without reading its values: a parser would change large numbers and drop names that occur twice. Other text stays as it is. */
export function indentJson(text: string): string {
  try {
    JSON.parse(text);
  } catch {
    return text;
  }
  const pieces = (text.match(PIECES) ?? []).filter((piece) => piece.trim() !== '');
  let depth = 0;
  const line = (): string => `\n${'  '.repeat(depth)}`;
  return pieces
    .map((piece, i) => {
      const [before, after] = [pieces[i - 1], pieces[i + 1]];
      if (piece === '{' || piece === '[') {
        depth++;
        return after === '}' || after === ']' ? piece : piece + line();
      }
      if (piece === '}' || piece === ']') {
        depth--;
        return before === '{' || before === '[' ? piece : line() + piece;
      }
      if (piece === ',') return piece + line();
      return piece === ':' ? ': ' : piece;
    })
    .join('');
}
