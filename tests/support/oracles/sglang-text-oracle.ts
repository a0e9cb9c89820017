import { isDeepStrictEqual } from 'node:util';
import { isObject } from '../../../gateway/json.ts';
import type { Step } from '../scenarios/converse.ts';
import { cutAtStop } from './visible-text-oracle.ts';

/**
 * True when an agent saw the text of its reply's ids as SGLang shows it: its parser `hermes` drops calls of tools that the request does not
 * have, calls of which only the opening is there, and spaces around the text before the first call; with a call that is not JSON the whole
 * text is shown.
 */
export function isSglangText(step: Step, said: string, parses: boolean): boolean {
  const whole = cutAtStop(said, step.asked.stop)?.text ?? said;
  const { text, calls } =
    parses && step.asked.tools ? apart(whole, namesOf(step.asked.tools)) : { text: whole, calls: [] };
  const seen = step.calls.map(({ function: { name, arguments: given } }) => [name, parsed(given)]);
  return step.text === text && isDeepStrictEqual(seen, calls);
}

const namesOf = (tools: unknown): unknown[] =>
  (Array.isArray(tools) ? tools : []).map((tool) =>
    isObject(tool) && isObject(tool.function) ? tool.function.name : null,
  );

function apart(whole: string, names: readonly unknown[]): { text: string; calls: unknown[][] } {
  const [before = '', ...rest] = whole.split('<tool_call>');
  if (rest.length === 0) return { text: whole, calls: [] };
  const inner = rest.map((each) => each.split('</tool_call>')[0] ?? '').filter((each) => each !== '');
  const written = inner.map(parsed);
  if (!written.every(isObject)) return { text: whole, calls: [] };
  const calls = written.map(({ name, arguments: given }) => [name, given]).filter(([name]) => names.includes(name));
  return { text: before.trim(), calls };
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}
