import { readdir, stat } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { TrialgateError } from '../../core/errors.ts';
import { meantPath } from '../../core/nearest-path.ts';
import type { RowsSource } from '../../core/run-config/task-source.ts';
import { isRowsFile, readFile, type NumberedRow } from './formats/index.ts';
import { downloadDataset } from './hub.ts';
import { columnsOf } from './render-prompt.ts';

/** Returns the folder of downloaded datasets. */
export const cacheOf = (home: string): string => join(home, 'cache');

/**
 * Reads the rows of a source, at most its `limit`.
 * @param cache see `cacheOf`
 * @throws TrialgateError `bad_input` that names the file and the line, also when there is no row
 */
export async function* readRows(source: RowsSource, cache: string): AsyncGenerator<NumberedRow> {
  let count = 0;
  const prompted = columnsOf(source.prompt);
  for await (const file of filesOf(source, cache)) {
    for await (const each of readFile(file)) {
      requireTexts(each, prompted);
      yield each;
      count += 1;
      if (count === source.limit) return;
    }
  }
  if (count === 0) throw new TrialgateError('bad_input', `tasks: ${source.rows} has no rows`);
}

/** Bytes in a prompt would be base64, and a run would train on that. */
function requireTexts({ binary = [], where }: NumberedRow, prompted: ReadonlySet<string>): void {
  const column = binary.find((name) => prompted.has(name));
  if (column === undefined) return;
  throw new TrialgateError(
    'bad_input',
    `${where}: the prompt names the column \`${column}\`, which has bytes: write it as a column of texts`,
  );
}

async function* filesOf(source: RowsSource, cache: string): AsyncGenerator<string> {
  const { rows } = source;
  const found = await stat(rows).catch(() => null);
  if (found?.isFile()) return yield rows;
  if (found?.isDirectory()) return yield* await filesOfSplit(rows, source.split);
  if (/^(?:[\w.-]+\/)?[\w.-]+$/.test(rows) && !isRowsFile(rows)) return yield* downloadDataset(source, cache);
  throw new TrialgateError(
    'bad_input',
    `tasks: there is no file or folder ${rows}, and a dataset on the hub is called owner/name${await meantPath(rows)}`,
  );
}

/**
 * Returns the files of a split, in the order of their names. They are in a folder of the split's name, as `DatasetDict.save_to_disk` writes
 * it, or have names that begin with the split's, such as `train.jsonl` and `data/train-00000-of-00001.parquet`. A folder without any of
 * these has the one split `train`, which is all of its files.
 */
async function filesOfSplit(folder: string, split: string): Promise<string[]> {
  const places = [folder, join(folder, 'data'), join(folder, split)];
  const lists = await Promise.all(places.map(rowFiles));
  const [here = [], data = [], own = []] = lists;
  if (own.length > 0) return own;
  const all = [...here, ...data];
  const named = all.filter((file) => [`${split}.`, `${split}-`].some((start) => basename(file).startsWith(start)));
  if (named.length > 0) return named;
  const isOneSplit =
    here.length > 0 && !here.some((file) => /^(?:train|test|validation|valid|dev)[-.]/.test(basename(file)));
  if (isOneSplit && split === 'train') return here;
  const found = all.map((file) => basename(file)).join(', ') || 'no rows';
  throw new TrialgateError('bad_input', `tasks: ${folder} has no split ${split}: there are ${found}`);
}

async function rowFiles(folder: string): Promise<string[]> {
  const names = await readdir(folder).catch(() => []);
  return names
    .filter(isRowsFile)
    .toSorted()
    .map((name) => join(folder, name));
}
