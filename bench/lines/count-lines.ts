const LONG_STRING = /[rR]?("""|''')[\s\S]*?\1/g;

/** Returns the number of lines that are neither blank nor comments. A docstring of Python is a comment. */
export function countLines(text: string, isPython: boolean): number {
  const code = isPython ? text.replace(LONG_STRING, withoutDocstring) : text;
  return code.split('\n').filter((line) => !/^\s*(#|$)/.test(line)).length;
}

/** Drops a string that has its lines for itself. */
function withoutDocstring(found: string, _quotes: string, at: number, text: string): string {
  const before = text.slice(0, at).split('\n').at(-1) ?? '';
  const [after = ''] = text.slice(at + found.length).split('\n', 1);
  return before.trim() === '' && after.trim() === '' ? '' : found;
}

/** Returns the blocks of code of one language in a section of a Markdown document, up to the next heading. */
export function blocksOf(markdown: string, heading: string, language: string): string {
  const [, section = ''] = `\n${markdown}`.split(`\n${heading}\n`);
  const parts = [...section.matchAll(/^(#{1,6} )|^```(\w*)\n([^]*?)^```$/gm)];
  const end = parts.findIndex(([, next]) => next !== undefined);
  return parts
    .slice(0, end === -1 ? undefined : end)
    .flatMap(([, , of, block = '']) => (of === language ? [block] : []))
    .join('\n');
}
