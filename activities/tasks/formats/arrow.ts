import { createReadStream } from 'node:fs';
import { isUtf8 } from 'node:buffer';
import { RecordBatchReader, Type, type Data, type RecordBatch } from 'apache-arrow';
import { TrialgateError } from '../../../core/errors.ts';
import { notUtf8, toRow } from './to-row.ts';
import type { NumberedRow } from './index.ts';

/** Reads an Arrow file, as `Dataset.save_to_disk` of Hugging Face's `datasets` writes it. */
export async function* readArrow(file: string): AsyncGenerator<NumberedRow> {
  let index = 0;
  try {
    for await (const batch of await RecordBatchReader.from(createReadStream(file))) {
      requireUtf8(batch, (row) => `${file}, row ${index + row}`);
      for (const row of batch) yield toRow(row.toJSON(), `${file}, row ${index++}`);
    }
  } catch (cause) {
    if (cause instanceof TrialgateError) throw cause;
    throw new TrialgateError(
      'bad_input',
      `${file}: not a readable Arrow file: ${cause instanceof Error ? cause.message : String(cause)}`,
      { cause },
    );
  }
}

/** The library decodes a text that is not UTF-8 with U+FFFD, so its bytes are checked first. */
function requireUtf8(batch: RecordBatch, where: (row: number) => string): void {
  for (const [i, { name }] of batch.schema.fields.entries()) {
    const column = batch.data.children[i];
    if (!column || isText(column)) continue;
    const isBad = (row: number) => JSON.stringify(batch.get(row)?.[name] ?? null).includes('\uFFFD');
    const rows = Array.from({ length: batch.numRows }, (_, row) => row);
    throw notUtf8(where(rows.find(isBad) ?? 0), name);
  }
}

/** True when all texts in the data are UTF-8, those in lists, structs and dictionaries too. */
function isText(data: Data): boolean {
  const inner = [...data.children, ...(data.dictionary?.data ?? [])];
  if (data.typeId !== Type.Utf8 && data.typeId !== Type.LargeUtf8) return inner.every((each) => isText(each));
  const bytes: Uint8Array = data.values;
  // The array may be longer, because buffers have padding.
  const offsets = Array.from(data.valueOffsets, Number).slice(0, data.length + 1);
  return (
    isUtf8(bytes.subarray(offsets[0], offsets.at(-1))) &&
    // A text must not begin within a character.
    offsets.slice(0, -1).every((from, i) => from === offsets[i + 1] || ((bytes[from] ?? 0) & 0xc0) !== 0x80)
  );
}
