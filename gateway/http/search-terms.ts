/** Returns the words of a search, and its phrases, which stand in quotation marks. */
export const termsOf = (search: string): string[] =>
  [...search.matchAll(/"([^"]*)"|([^\s"]+)/g)]
    .map(([, phrase, word]) => (phrase ?? word ?? '').trim())
    .filter((term) => term !== '');
