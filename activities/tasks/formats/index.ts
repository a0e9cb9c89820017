import { extname } from 'node:path';
import { TrialgateError } from '../../../core/errors.ts';
import type { JsonObject } from '../../../core/json.ts';
import { readArrow } from './arrow.ts';
import { readCsv } from './csv.ts';
import { readJsonLines } from './jsonl.ts';
import { readParquet } from './parquet.ts';

/** A row, and the place in its file, for messages. `binary` names the columns that have bytes. */
export type NumberedRow = { row: JsonObject; where: string; binary?: readonly string[] };

/** The formats of rows, by the endings of their files' names. */
const FORMATS: Record<string, (file: string) => AsyncGenerator<NumberedRow>> = {
  '.jsonl': readJsonLines,
  '.ndjson': readJsonLines,
  '.csv': readCsv,
  '.parquet': readParquet,
  '.arrow': readArrow,
};

export const isRowsFile = (file: string): boolean => extname(file).toLowerCase() in FORMATS;

/**
 * Reads the rows of a file.
 * @throws TrialgateError `bad_input` that names the file and the line or row
 */
export function readFile(file: string): AsyncGenerator<NumberedRow> {
  const read = FORMATS[extname(file).toLowerCase()];
  if (read) return read(file);
  throw new TrialgateError('bad_input', `tasks: ${file} is not ${Object.keys(FORMATS).join(', ')}`);
}
