import { isDeepStrictEqual } from 'node:util';
import { isObject } from '../json.ts';
import type { Step } from './converse.ts';

type Call = { name: unknown; arguments: unknown };

/** A token's text holds no more characters than that. */
const TOKEN = 24;

/** Whether an agent saw what its reply's ids say. `within`: its prompt ended within a character. */
export function isSpoken(step: Step, said: string, { parses, within }: { parses: boolean; within: boolean }): boolean {
  const whole = stopped(said, step.asked.stop)?.text ?? said;
  if (parses && step.asked.tools && /<tool_call>(?![^]*<\/tool_call>)/.test(whole) && !shows(step.text, whole, within)) return isCutCall(step, whole, within);
  if (parses && step.asked.tools && step.asked.stream === true && isKeptBack(step, whole)) return true;
  const { text, calls } = parses && step.asked.tools ? apart(whole) : { text: whole, calls: [] };
  const seen = step.calls.map(({ function: { name, arguments: given } }): Call => ({ name, arguments: parsed(given) }));
  return shows(step.text, text, within) && isDeepStrictEqual(seen, calls);
}

/**
 * Where a prompt of ids ends within a character, vLLM shows the whole prompt again before its reply, and looks there for what stops
 * that (https://github.com/vllm-project/vllm/issues/48853). `both`: what the ids of the prompt and the reply say together.
 */
export const showsPrompt = ({ text, asked }: Pick<Step, 'text' | 'asked'>, both: string): boolean => text === (stopped(both, asked.stop)?.text ?? both);

/** A stream keeps back what may become a call (vLLM's hermes parser); one that is cut there never brings it. */
function isKeptBack({ text, calls }: Step, whole: string): boolean {
  const kept = /<(t(o(o(l(_(c(a(ll?)?)?)?)?)?)?)?)?$/.exec(whole);
  return kept !== null && calls.length === 0 && !whole.includes('<tool_call>') && text === whole.slice(0, kept.index);
}

/** What a reply's ids say before the stop string that ended it, and after it: a token may go on. Null: none ended it. */
export function stopped(whole: string, stop: unknown): { text: string; stop: string; rest: string } | null {
  const found = [stop].flat().flatMap((each) => (typeof each === 'string' && whole.includes(each) ? [{ stop: each, at: whole.indexOf(each) }] : []));
  const [first] = found.toSorted((a, b) => a.at + a.stop.length - b.at - b.stop.length);
  return first ? { text: whole.slice(0, first.at), stop: first.stop, rest: whole.slice(first.at + first.stop.length) } : null;
}

/**
 * A stream brings of a call that was cut what there is of its arguments, or nothing before those; a plain reply the call if they are
 * whole, else its text as it is.
 */
function isCutCall({ asked, text, calls: [call, ...more] }: Step, whole: string, within: boolean): boolean {
  const [, before = '', name, written = ''] = /^([^]*?)<tool_call>(?:[^]*?"name": ?"([^"]*)"(?:[^]*?"arguments": ?([^]*))?)?/.exec(whole) ?? [];
  if (text !== before || more.length > 0) return false;
  if (!call) return asked.stream === true;
  const given = call.function.arguments;
  const soFar = written.replace(/\s*\}?\s*(<[/a-z_]*)?$/, '');
  const isCut = shows(given, written, within) || soFar === given.trim() || isDeepStrictEqual(parsed(given), parsed(soFar));
  return call.function.name === name && isCut;
}

/** Calls of tools as the hermes parser finds them, and the text before them. */
function apart(whole: string): { text: string; calls: Call[] } {
  const found = [...whole.matchAll(/<tool_call>([^]*?)<\/tool_call>/g)];
  const calls = found.map(([, inner = '']) => parsed(inner)).filter(isObject);
  // Where one is no JSON, it takes none.
  if (calls.length < found.length) return { text: whole, calls: [] };
  return { text: whole.slice(0, found[0]?.index), calls: calls.map(({ name, arguments: given }) => ({ name, arguments: given })) };
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

/**
 * A reply that was cut within a character: a decoder writes U+FFFD there, a stream leaves out what its last token had begun, with the
 * space that may stand first in that.
 * `within`: its prompt ended within a character. What an engine shows of that beginning is the engine's own; the rest must be there.
 */
function shows(seen: string, recorded: string, within: boolean): boolean {
  if (seen === recorded) return true;
  const [whole, rest] = [seen.replace(/\uFFFD+$/, ''), within ? recorded.replace(/^\uFFFD+/, '') : recorded];
  const end = rest.replace(/\uFFFD+$/, '');
  if (within && (seen.endsWith(rest) || whole.endsWith(end) || (end !== rest && whole.endsWith(end.replace(/ $/, ''))))) return true;
  return rest.endsWith('\uFFFD') && rest.startsWith(whole) && rest.length - whole.length <= TOKEN;
}
