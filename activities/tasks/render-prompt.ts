import { TrialgateError } from '../../core/errors.ts';
import { exactKey, stringifyExact } from '../../core/exact-json.ts';
import { isObject, type JsonObject } from '../../core/json.ts';
import { promptMessages, type Message } from '../../core/prompt-messages.ts';
import type { RowsSource } from '../../core/run-config/task-source.ts';

/** `{{` and `}}` are the braces themselves, as in Python's `str.format`. */
const PLACEHOLDER = /\{\{|\}\}|\{([^{}]+)\}/g;
/** A template that is one column alone. */
const ALONE = /^\{([^{}]+)\}$/;

/**
 * Returns a row's prompt: a text, or messages where the template or its column has messages.
 * @param where the file and the row, for the error
 * @throws TrialgateError `bad_input` for a column that the row lacks, that is empty, or that has a structure which is not that of messages
 */
export function renderPrompt(prompt: RowsSource['prompt'], row: JsonObject, where: string): string | Message[] {
  if (typeof prompt !== 'string')
    return prompt.map(({ role, content }) => ({ role, content: fill(content, row, where) }));
  const column = ALONE.exec(prompt)?.[1];
  const value = column === undefined ? undefined : valueOf(row, column, where);
  if (column !== undefined && (Array.isArray(value) || isObject(value))) return messagesOf(value, column, where);
  const text = fill(prompt, row, where);
  if (text.trim() === '') throw new TrialgateError('bad_input', `${where}: the prompt is empty`);
  return text;
}

/** Returns the columns that a prompt names. */
export function columnsOf(prompt: RowsSource['prompt']): Set<string> {
  const templates = typeof prompt === 'string' ? [prompt] : prompt.map(({ content }) => content);
  return new Set(templates.flatMap((each) => [...each.matchAll(PLACEHOLDER)].flatMap(([, column]) => column ?? [])));
}

/** A structure that is not understood is refused: as JSON in a text, a run would train on it and nobody would notice. */
function messagesOf(value: unknown, column: string, where: string): Message[] {
  const parsed = promptMessages.safeParse(value);
  if (parsed.success) return parsed.data;
  const issue = parsed.error.issues[0];
  const path = issue?.path.map((key) => (typeof key === 'number' ? `[${key}]` : `.${String(key)}`)).join('') ?? '';
  const help = isShareGpt(value)
    ? 'rename `from` to `role` (human: user, gpt: assistant) and `value` to `content`'
    : 'a prompt is a text, or a list of messages in OpenAI’s form';
  throw new TrialgateError('bad_input', `${where}: the column \`${column}\`${path}: ${issue?.message}: ${help}`);
}

const isShareGpt = (value: unknown): boolean =>
  Array.isArray(value) && value.some((each) => isObject(each) && 'from' in each && 'value' in each);

/** Messages belong into a prompt that is their column alone. */
const isLikeMessages = (value: unknown): boolean =>
  isShareGpt(value) || (Array.isArray(value) && value.some((each) => isObject(each) && 'role' in each));

function fill(template: string, row: JsonObject, where: string): string {
  return template.replace(PLACEHOLDER, (whole, column: string | undefined) => {
    if (column === undefined) return whole.slice(0, 1);
    const value = valueOf(row, column, where);
    if (isLikeMessages(value))
      throw new TrialgateError(
        'bad_input',
        `${where}: the column \`${column}\` has messages, which cannot stand within a text: let the prompt be \`{${column}}\` alone`,
      );
    return typeof value === 'string' ? value : stringifyExact(value);
  });
}

function valueOf(row: JsonObject, column: string, where: string): unknown {
  const key = [column, exactKey(column)].find((each) => Object.hasOwn(row, each));
  const value = key === undefined ? undefined : row[key];
  if (value !== undefined && value !== null) return value;
  const fault = key === undefined ? `does not exist; there are ${Object.keys(row).join(', ')}` : 'is empty';
  throw new TrialgateError('bad_input', `${where}: the prompt names the column \`${column}\`, which ${fault}`);
}
