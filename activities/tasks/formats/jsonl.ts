import { createReadStream } from 'node:fs';
import { createInterface } from 'node:readline';
import { TrialgateError } from '../../../core/errors.ts';
import { parseExact } from '../../../core/exact-json.ts';
import { isObject } from '../../../core/json.ts';
import type { NumberedRow } from './index.ts';

/** Reads JSON Lines. An empty line is no row, but the line numbers in messages count it. */
export async function* readJsonLines(file: string): AsyncGenerator<NumberedRow> {
  const lines = createInterface({ input: createReadStream(file, 'utf8'), crlfDelay: Infinity });
  let number = 0;
  for await (const line of lines) {
    number += 1;
    if (line.trim() === '') continue;
    const where = `${file}:${number}`;
    yield { row: parseLine(number === 1 ? line.replace(/^\uFEFF/, '') : line, where), where };
  }
}

function parseLine(line: string, where: string) {
  const value = parseJson(line, where);
  if (isObject(value)) return value;
  throw new TrialgateError('bad_input', `${where}: expected a JSON object, found ${line.slice(0, 100)}`);
}

function parseJson(line: string, where: string): unknown {
  try {
    return parseExact(line);
  } catch (cause) {
    throw new TrialgateError(
      'bad_input',
      `${where}: not JSON: ${cause instanceof Error ? cause.message : String(cause)}`,
      {
        cause,
      },
    );
  }
}
