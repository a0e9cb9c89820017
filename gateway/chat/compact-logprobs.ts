import { entry, NUMBER } from './logprob-entry.ts';

const OPENING = '"logprobs":{"content":[';
const ENTRY = new RegExp(`${entry(`(${NUMBER})`)},?`, 'y');
const CLOSING = /\](?:,"\w+":null)*\}/y;

/**
 * A reply's JSON with each list of log-probabilities as a list of numbers, the form that text completions have: an object for
 * each token is most of what parsing a reply costs. A list in any other form stays as it is. (Within a string every quote is
 * escaped, so the opening is never a part of what was said.)
 */
export function compactLogprobs(json: string): string {
  let compact = '';
  let from = 0;
  for (let at = json.indexOf(OPENING); at >= 0; at = json.indexOf(OPENING, at + 1)) {
    const numbers: string[] = [];
    let end = at + OPENING.length;
    ENTRY.lastIndex = end;
    for (let match = ENTRY.exec(json); match; match = ENTRY.exec(json)) {
      numbers.push(match[1] ?? '');
      end = ENTRY.lastIndex;
    }
    CLOSING.lastIndex = end;
    if (json[end - 1] === ',' || !CLOSING.test(json)) continue;
    compact += `${json.slice(from, at)}"logprobs":{"token_logprobs":[${numbers.join(',')}]}`;
    from = CLOSING.lastIndex;
  }
  return compact + json.slice(from);
}
