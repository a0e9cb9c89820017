import { createReadStream } from 'node:fs';
import { RecordBatchReader } from 'apache-arrow';
import { TrialgateError } from '../../../core/errors.ts';
import { toRow } from './to-row.ts';
import type { NumberedRow } from './index.ts';

/** Reads an Arrow file, as `Dataset.save_to_disk` of Hugging Face's `datasets` writes it. */
export async function* readArrow(file: string): AsyncGenerator<NumberedRow> {
  let index = 0;
  try {
    for await (const batch of await RecordBatchReader.from(createReadStream(file)))
      for (const row of batch) yield { row: toRow(row.toJSON()), where: `${file}, row ${index++}` };
  } catch (cause) {
    throw new TrialgateError(
      'bad_input',
      `${file}: not a readable Arrow file: ${cause instanceof Error ? cause.message : String(cause)}`,
      { cause },
    );
  }
}
