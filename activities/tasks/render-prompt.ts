import { z } from 'zod';
import { TrialgateError } from '../../core/errors.ts';
import { exactKey, stringifyExact } from '../../core/exact-json.ts';
import type { JsonObject } from '../../core/json.ts';
import type { Message } from '../../core/task.ts';
import type { RowsSource } from '../../core/run-config/task-source.ts';

/** `{{` and `}}` are the braces themselves, as in Python's `str.format`. */
const PLACEHOLDER = /\{\{|\}\}|\{([^{}]+)\}/g;
/** A template that is one column alone. */
const ALONE = /^\{([^{}]+)\}$/;

const messages = z.array(z.object({ role: z.string(), content: z.string() })).min(1);

/**
 * Returns the messages of a row's prompt.
 * @param where the file and the row, for the error
 * @throws TrialgateError `bad_input` for a column that the row lacks, or that is empty
 */
export function renderPrompt(prompt: RowsSource['prompt'], row: JsonObject, where: string): Message[] {
  if (typeof prompt !== 'string')
    return prompt.map(({ role, content }) => ({ role, content: fill(content, row, where) }));
  const column = ALONE.exec(prompt)?.[1];
  const given = column === undefined ? undefined : messages.safeParse(valueOf(row, column, where));
  if (given?.success) return given.data;
  const text = fill(prompt, row, where);
  if (text.trim() === '') throw new TrialgateError('bad_input', `${where}: the prompt is empty`);
  return [{ role: 'user', content: text }];
}

function fill(template: string, row: JsonObject, where: string): string {
  return template.replace(PLACEHOLDER, (whole, column: string | undefined) => {
    if (column === undefined) return whole.slice(0, 1);
    const value = valueOf(row, column, where);
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
