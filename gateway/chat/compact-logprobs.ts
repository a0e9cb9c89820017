import { entry, NUMBER } from './logprob-entry.ts';

const OPENING = '"logprobs":{"content":[';
const ENTRY = new RegExp(entry(`(${NUMBER})`), 'y');

/**
 * Returns a reply's JSON with each list of log-probabilities as a list of numbers, the form of text completions, because an object for each
 * token is most of the cost of parsing a reply. A list in any other form stays. Every quote within a string is escaped, so the opening
 * never matches inside of a text.
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
