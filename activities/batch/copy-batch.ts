import { RecordBatch, RecordBatchFileWriter, Schema, Table, tableFromIPC } from 'apache-arrow';
import { readFile } from 'node:fs/promises';
import { dirname } from 'node:path';
import { TrialgateError } from '../../core/errors.ts';
import { storeBatch } from './store-batch.ts';

export type BatchFile = { path: string; table: Table; /** The names of its trials' rewards. */ rewards: string[] };

/**
 * Opens a batch file.
 * @throws TrialgateError `bad_input` when the file no longer exists
 */
export async function openBatch(path: string): Promise<BatchFile> {
  const bytes = await readFile(path).catch((cause: unknown) => {
    throw new TrialgateError('bad_input', `the batch ${path} is no longer there`, { cause });
  });
  const table = tableFromIPC(bytes);
  const rewards = new Set<string>();
  for (const value of table.getChild('rewards') ?? [])
    for (const name of Object.keys(value?.toJSON() ?? {})) rewards.add(name);
  return { path, table, rewards: [...rewards].toSorted() };
}

/**
 * Copies a batch for another run, whose name the file has. A step is keyed by its batch, and a step of one run must not be found done in a
 * checkpoint that another run may prune.
 */
export function copyBatch({ path, table }: BatchFile, runId: string): Promise<{ sha256: string; path: string }> {
  const schema = new Schema(table.schema.fields, new Map([...table.schema.metadata, ['run', runId]]));
  const batches = table.batches.map(({ data }) => new RecordBatch(schema, data));
  return storeBatch(dirname(path), RecordBatchFileWriter.writeAll(new Table(schema, batches)).toUint8Array(true));
}
