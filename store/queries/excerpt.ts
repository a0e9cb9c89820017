/** A part of an excerpt. */
export type ExcerptPart = { text: string; isMatch: boolean };

/** The characters of an excerpt before the first match, and from it on. */
const BEFORE = 80;
const AFTER = 240;

/** Returns the part of a text around the first place of the first term, with all matches in it; null when the text lacks a term. */
export function excerptOf(text: string, terms: readonly string[]): ExcerptPart[] | null {
  const [first = -1, ...others] = terms.map((term) => text.search(anyOf([term], 'iu')));
  if (first < 0 || others.some((at) => at < 0)) return null;
  const start = Math.max(0, first - BEFORE);
  const end = Math.min(text.length, first + AFTER);
  const parts = text.slice(start, end).toWellFormed().split(anyOf(terms, 'giu'));
  const excerpt = parts.map((part, i) => ({ text: part, isMatch: i % 2 === 1 }));
  return [
    ...(start > 0 ? [{ text: '… ', isMatch: false }] : []),
    ...excerpt.filter(({ text: part }) => part !== ''),
    ...(end < text.length ? [{ text: ' …', isMatch: false }] : []),
  ];
}

/** Returns an expression with one group that matches any of the terms. White space in a term matches any, such as the end of a line. */
const anyOf = (terms: readonly string[], flags: string): RegExp =>
  new RegExp(
    `(${terms
      .map((term) =>
        term
          .split(/\s+/)
          .map(literal)
          .join(String.raw`\s+`),
      )
      .join('|')})`,
    flags,
  );

const literal = (text: string): string => text.replace(/[\\^$.*+?()[\]{}|/]/g, String.raw`\$&`);
