import { TrialgateError } from '../../../core/errors.ts';
import { parseExact } from '../../../core/exact-json.ts';
import { isObject } from '../../../core/json.ts';
import type { NumberedRow } from './index.ts';
import { utf8Pieces } from './utf8-pieces.ts';

/** Reads JSON Lines. An empty line is no row, but the line numbers in messages count it. */
export async function* readJsonLines(file: string): AsyncGenerator<NumberedRow> {
  let number = 0;
  for await (const line of linesOf(file)) {
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

/** Splits at `\n` alone: JSON may have the other line ends of Unicode in its texts, at which Node's readline splits too. */
async function* linesOf(file: string): AsyncGenerator<string> {
  for await (const piece of utf8Pieces(file)) yield* piece.replace(/\n$/, '').split('\n');
}
