import { stringifyExact } from '../../../core/exact-json.ts';
import { isObject, type JsonObject } from '../../json.ts';
import { userTurn } from '../user-turn.ts';
import type { LeftOut } from '../unserved.ts';
import type { Content, GenerateRequest, Part } from './shape.ts';

type Prompt = Pick<GenerateRequest, 'contents' | 'systemInstruction'>;

/** Converts a conversation to chat messages: the system prompt first, and results of functions as messages of their own. */
export function chatMessagesOf({ systemInstruction, contents }: Prompt): JsonObject[] {
  const system = (systemInstruction?.parts ?? []).map(({ text }) => text ?? '').join('\n');
  const calls = new CallIds();
  return [
    ...(system === '' ? [] : [{ role: 'system', content: system }]),
    ...turnsOf(contents).flatMap(({ role, parts }) =>
      role === 'model' ? [assistantMessage(parts, calls)] : userMessages(parts, calls),
    ),
  ];
}

type Turn = { role: 'model' | 'user'; parts: Part[] };

/** Joins contents of the same role. A client that read a stream sends the reply back as one content for each event. */
function turnsOf(contents: readonly Content[]): Turn[] {
  const turns: Turn[] = [];
  for (const { role, parts } of contents) {
    const own = role === 'model' ? 'model' : 'user';
    const last = turns.at(-1);
    if (last?.role === own) last.parts.push(...(parts ?? []));
    else turns.push({ role: own, parts: [...(parts ?? [])] });
  }
  return turns;
}

/** The ids of calls. A client may leave them out: its results then follow the calls of the same name, in order. */
class CallIds {
  #open: { id: string; name: string }[] = [];
  #count = 0;

  /** Begins a new reply. */
  begin(): void {
    this.#open = [];
  }

  call(name: string, id: string | null): string {
    const own = id ?? `call_${this.#count++}`;
    this.#open.push({ id: own, name });
    return own;
  }

  result(name: string, id: string | null): string {
    const at = this.#open.findIndex((each) => (id === null ? each.name === name : each.id === id));
    const [found] = at < 0 ? [] : this.#open.splice(at, 1);
    return found?.id ?? id ?? `call_${this.#count++}`;
  }
}

/** Builds the message as a chat reply has it, with one text, its reasoning and its tool calls, so that it equals the recorded reply. */
function assistantMessage(parts: readonly Part[], ids: CallIds): JsonObject {
  ids.begin();
  const said = (isThought: boolean): string =>
    parts.map(({ text, thought }) => ((thought === true) === isThought ? (text ?? '') : '')).join('');
  const [text, reasoning] = [said(false), said(true)];
  const calls = parts.flatMap(({ functionCall: call }) =>
    call
      ? [
          {
            id: ids.call(call.name, call.id ?? null),
            type: 'function',
            function: { name: call.name, arguments: argumentsOf(call.args) },
          },
        ]
      : [],
  );
  return {
    role: 'assistant',
    content: text !== '' || calls.length === 0 ? text : null,
    ...(reasoning === '' ? {} : { reasoning }),
    ...(calls.length > 0 ? { tool_calls: calls } : {}),
  };
}

/** Arguments that were not JSON come back as a text. */
const argumentsOf = (args: unknown): string =>
  typeof args === 'string' ? args : args === undefined || args === null ? '{}' : stringifyExact(args);

function userMessages(parts: readonly Part[], ids: CallIds): JsonObject[] {
  const results = parts.flatMap(({ functionResponse: result }) =>
    result
      ? [{ role: 'tool', tool_call_id: ids.result(result.name, result.id ?? null), content: contentOf(result) }]
      : [],
  );
  const shown = parts.flatMap(chatParts);
  // A message that holds only parts that cannot be shown stays, because a conversation without the agent's last message is refused.
  if (shown.length === 0) return results.length > 0 ? results : [{ role: 'user', content: '' }];
  return userTurn(results, shown);
}

/** Returns a function's result as text, or as parts where it has media. */
function contentOf({ response, parts }: NonNullable<Part['functionResponse']>): string | JsonObject[] {
  const text = outputOf(response);
  const media = (parts ?? []).flatMap(chatParts);
  return media.length === 0 ? text : [...(text === '' ? [] : [{ type: 'text', text }]), ...media];
}

/** Returns a function's result as text: its only field `output`, as Google's clients name it, or all of it. */
function outputOf(response: unknown): string {
  if (typeof response === 'string') return response;
  if (isObject(response) && Object.keys(response).length === 1 && typeof response.output === 'string')
    return response.output;
  return response === undefined || response === null ? '' : stringifyExact(response);
}

const FORMATS: Record<string, string> = { mpeg: 'mp3', 'x-wav': 'wav' };

function chatParts({ text, inlineData: blob }: Pick<Part, 'text' | 'inlineData'>): JsonObject[] {
  if (typeof text === 'string') return text === '' ? [] : [{ type: 'text', text }];
  const [kind, form = ''] = blob?.mimeType.split('/') ?? [];
  const url = `data:${blob?.mimeType};base64,${blob?.data}`;
  if (kind === 'image') return [{ type: 'image_url', image_url: { url } }];
  if (kind === 'video') return [{ type: 'video_url', video_url: { url } }];
  if (kind === 'audio')
    return [{ type: 'input_audio', input_audio: { data: blob?.data, format: FORMATS[form] ?? form } }];
  return [];
}

const SHOWN = ['text', 'functionCall', 'functionResponse'];

/** Returns the parts that the model is not shown: files that the provider stores, code that it ran, documents. */
export function leftOutParts({ systemInstruction, contents }: Prompt): LeftOut[] {
  const of = (content: Content | null | undefined, at: string): LeftOut[] =>
    (content?.parts ?? []).flatMap((part, i) => {
      const isShown = SHOWN.some((name) => (part[name] ?? null) !== null) || chatParts(part).length > 0;
      const [kind] = Object.keys(part).filter((name) => name !== 'thought' && name !== 'thoughtSignature');
      return isShown || kind === undefined ? [] : [{ at: `${at}.parts.${i}`, value: { type: snake(kind), ...part } }];
    });
  return [
    ...of(systemInstruction, 'systemInstruction'),
    ...contents.flatMap((content, i) => of(content, `contents.${i}`)),
  ];
}

/** Names are counted in this form. */
export const snake = (name: string): string => name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
