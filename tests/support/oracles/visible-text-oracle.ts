import { isDeepStrictEqual } from 'node:util';
import { isObject } from '../../../gateway/json.ts';
import type { Step } from '../scenarios/converse.ts';

type Call = { name: unknown; arguments: unknown };

/** The most characters in the text of one token. */
const TOKEN = 24;

/** True when an agent saw the text of its reply's ids. `within` is true when its prompt ended within a character. */
export function isVisibleText(
  step: Step,
  said: string,
  { parses, within }: { parses: boolean; within: boolean },
): boolean {
  const whole = cutAtStop(said, step.asked.stop)?.text ?? said;
  if (parses && step.asked.tools && /<tool_call>(?![^]*<\/tool_call>)/.test(whole) && !shows(step.text, whole, within))
    return isCutCall(step, whole, within);
  if (parses && step.asked.tools && step.asked.stream === true && isKeptBack(step, whole)) return true;
  const { text, calls } = parses && step.asked.tools ? apart(whole) : { text: whole, calls: [] };
  const seen = step.calls.map(({ function: { name, arguments: given } }): Call => ({ name, arguments: parsed(given) }));
  return shows(step.text, text, within) && isDeepStrictEqual(seen, calls);
}

/**
 * True when vLLM showed the prompt again before its reply, which it does when a prompt of ids ends within a character, and then also
 * searches it for stop strings (https://github.com/vllm-project/vllm/issues/48853). `both` is the text of prompt and reply together.
 */
export const showsPrompt = ({ text, asked }: Pick<Step, 'text' | 'asked'>, both: string): boolean =>
  text === (cutAtStop(both, asked.stop)?.text ?? both);

/** True when a stream kept back what may become a tool call (vLLM's hermes parser) and was cut before it was decided. */
function isKeptBack({ text, calls }: Step, whole: string): boolean {
  const kept = /<(t(o(o(l(_(c(a(ll?)?)?)?)?)?)?)?)?$/.exec(whole);
  return kept !== null && calls.length === 0 && !whole.includes('<tool_call>') && text === whole.slice(0, kept.index);
}

/** Returns a reply's text before its stop string and after it, because a token may go on past it. Returns null if none ended the reply. */
export function cutAtStop(whole: string, stop: unknown): { text: string; stop: string; rest: string } | null {
  const found = [stop]
    .flat()
    .flatMap((each) =>
      typeof each === 'string' && whole.includes(each) ? [{ stop: each, at: whole.indexOf(each) }] : [],
    );
  const [first] = found.toSorted((a, b) => a.at + a.stop.length - b.at - b.stop.length);
  return first
    ? { text: whole.slice(0, first.at), stop: first.stop, rest: whole.slice(first.at + first.stop.length) }
    : null;
}

/**
 * True when what was shown of a cut tool call fits. A stream shows the part of its arguments that there is, or nothing before those. A
 * plain reply shows the call if it is whole, else its text.
 */
function isCutCall({ asked, text, calls: [call, ...more] }: Step, whole: string, within: boolean): boolean {
  const [, before = '', name, written = ''] =
    /^([^]*?)<tool_call>(?:[^]*?"name": ?"([^"]*)"(?:[^]*?"arguments": ?([^]*))?)?/.exec(whole) ?? [];
  if (text !== before || more.length > 0) return false;
  if (!call) return asked.stream === true;
  const given = call.function.arguments;
  const soFar = written.replace(/\s*\}?\s*(<[/a-z_]*)?$/, '');
  const isCut =
    shows(given, written, within) || soFar === given.trim() || isDeepStrictEqual(parsed(given), parsed(soFar));
  return call.function.name === name && isCut;
}

/** Returns the tool calls as the hermes parser finds them, and the text before them. */
function apart(whole: string): { text: string; calls: Call[] } {
  const found = [...whole.matchAll(/<tool_call>([^]*?)<\/tool_call>/g)];
  const calls = found.map(([, inner = '']) => parsed(inner)).filter(isObject);
  // If one call is not JSON, the parser takes none.
  if (calls.length < found.length) return { text: whole, calls: [] };
  return {
    text: whole.slice(0, found[0]?.index),
    calls: calls.map(({ name, arguments: given }) => ({ name, arguments: given })),
  };
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

/**
 * Compares a reply that was cut within a character. A decoder writes U+FFFD there, and a stream leaves out what its last token had begun,
 * with its leading space. `within` is true when its prompt ended within a character. How an engine shows that beginning may differ; the
 * rest must be there.
 */
function shows(seen: string, recorded: string, within: boolean): boolean {
  if (seen === recorded) return true;
  const [whole, rest] = [seen.replace(/\uFFFD+$/, ''), within ? recorded.replace(/^\uFFFD+/, '') : recorded];
  const end = rest.replace(/\uFFFD+$/, '');
  if (within && (seen.endsWith(rest) || whole.endsWith(end) || (end !== rest && whole.endsWith(end.replace(/ $/, '')))))
    return true;
  return rest.endsWith('\uFFFD') && rest.startsWith(whole) && rest.length - whole.length <= TOKEN;
}
