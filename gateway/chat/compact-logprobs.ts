import { entry, NUMBER } from './logprob-entry.ts';

const OPENING = '"logprobs":{"content":[';
const ENTRY = new RegExp(entry(`(${NUMBER})`), 'y');

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
    do {
      ENTRY.lastIndex = end;
      const match = ENTRY.exec(json);
      if (!match) break;
      numbers.push(match[1] ?? '');
      end = ENTRY.lastIndex + 1;
    } while (json[end - 1] === ',');
    if (!json.startsWith(']}', end - 1)) continue;
    compact += `${json.slice(from, at)}"logprobs":{"token_logprobs":[${numbers.join(',')}]}`;
    from = end + 1;
  }
  return compact + json.slice(from);
}
