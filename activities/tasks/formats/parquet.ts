import { isUtf8 } from 'node:buffer';
import { asyncBufferFromFile, parquetMetadataAsync, parquetReadObjects } from 'hyparquet';
import { compressors } from 'hyparquet-compressors';
import { TrialgateError } from '../../../core/errors.ts';
import { NOT_UTF8, toRow } from './to-row.ts';
import type { NumberedRow } from './index.ts';

/** By default a text that is not UTF-8 would be decoded with U+FFFD, and a column of bytes as a text. */
const parsers = {
  stringFromBytes: (bytes: Uint8Array | undefined) =>
    bytes && (isUtf8(bytes) ? Buffer.from(bytes).toString('utf8') : NOT_UTF8),
};

/** Reads a Parquet file. */
export async function* readParquet(path: string): AsyncGenerator<NumberedRow> {
  const refuse = (cause: unknown): never => {
    throw new TrialgateError(
      'bad_input',
      `${path}: not a readable Parquet file: ${cause instanceof Error ? cause.message : String(cause)}`,
      { cause },
    );
  };
  const file = await asyncBufferFromFile(path);
  const metadata = await parquetMetadataAsync(file).catch(refuse);
  let rowStart = 0;
  // The file is compressed by row groups, so that one is the least that can be read.
  for (const group of metadata.row_groups) {
    const rowEnd = rowStart + Number(group.num_rows);
    const options = { file, metadata, compressors, rowStart, rowEnd, utf8: false, parsers };
    const rows = await parquetReadObjects(options).catch(refuse);
    for (const [index, row] of (rows ?? []).entries()) yield toRow(row, `${path}, row ${rowStart + index}`);
    rowStart = rowEnd;
  }
}
