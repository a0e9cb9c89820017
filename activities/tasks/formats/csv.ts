import { Readable } from 'node:stream';
import { CsvError, parse } from 'csv-parse';
import { z } from 'zod';
import { TrialgateError } from '../../../core/errors.ts';
import type { NumberedRow } from './index.ts';
import { utf8Pieces } from './utf8-pieces.ts';

const record = z.object({ record: z.record(z.string(), z.string()), info: z.object({ lines: z.number() }) });

/** Reads a CSV file whose first line names the columns. Every value is a text. */
export async function* readCsv(file: string): AsyncGenerator<NumberedRow> {
  const parser = parse({ columns: true, bom: true, info: true, skip_empty_lines: true });
  const input = Readable.from(utf8Pieces(file));
  input.once('error', (error) => parser.destroy(error));
  try {
    for await (const each of input.pipe(parser)) {
      const { record: row, info } = record.parse(each);
      yield { row, where: `${file}:${info.lines}` };
    }
  } catch (error) {
    if (error instanceof CsvError)
      throw new TrialgateError('bad_input', `${file}: not CSV: ${error.message}`, { cause: error });
    throw error;
  } finally {
    input.destroy();
  }
}
