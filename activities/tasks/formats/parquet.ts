import { asyncBufferFromFile, parquetMetadataAsync, parquetReadObjects } from 'hyparquet';
import { compressors } from 'hyparquet-compressors';
import { TrialgateError } from '../../../core/errors.ts';
import { toRow } from './to-row.ts';
import type { NumberedRow } from './index.ts';

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
    const rows = await parquetReadObjects({ file, metadata, compressors, rowStart, rowEnd }).catch(refuse);
    for (const [index, row] of (rows ?? []).entries())
      yield { row: toRow(row), where: `${path}, row ${rowStart + index}` };
    rowStart = rowEnd;
  }
}
