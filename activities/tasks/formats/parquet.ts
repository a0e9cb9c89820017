import { asyncBufferFromFile, parquetMetadataAsync, parquetReadObjects } from 'hyparquet';
import { compressors } from 'hyparquet-compressors';
import { TrialgateError } from '../../../core/errors.ts';
import { toRow } from './to-row.ts';
import type { NumberedRow } from './index.ts';

/** The rows that are in memory at a time. */
const BATCH = 1000;

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
  const count = Number(metadata.num_rows);
  for (let rowStart = 0; rowStart < count; rowStart += BATCH) {
    const rowEnd = Math.min(count, rowStart + BATCH);
    const batch = await parquetReadObjects({ file, metadata, compressors, rowStart, rowEnd }).catch(refuse);
    for (const [index, row] of (batch ?? []).entries())
      yield { row: toRow(row), where: `${path}, row ${rowStart + index}` };
  }
}
