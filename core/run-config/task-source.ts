import { z } from 'zod';
import { reward } from './reward.ts';

const count = z.int().min(1);

/** Sets how often a source has its turn, compared with the others. If no source has a weight, every task of all sources has the same number of turns. */
const weight = z.number().positive().optional();

/** A message of a prompt. Its content is a template. */
const message = z.strictObject({ role: z.enum(['system', 'user', 'assistant']), content: z.string().min(1) });

/** A task's folder or a folder of tasks in Harbor's format, with a weight. A plain text in the run file is the same without one. */
export const folderSource = z.strictObject({ folder: z.string().min(1), weight });

/** Rows of data, each of which is a task. The names `name` and `split` are those of `datasets.load_dataset`. */
export const rowsSource = z.strictObject({
  /** A file (.jsonl, .csv, .parquet, .arrow), a folder of them, or the name of a dataset on the Hugging Face hub. */
  rows: z.string().min(1),
  /** The subset of a dataset on the hub. */
  name: z.string().min(1).optional(),
  /** Names the split of a folder or of a dataset on the hub. */
  split: z.string().min(1).default('train'),
  /** The text that the agent gets, or the messages. `{column}` is the row's value; a column of messages alone is used as it is. */
  prompt: z.union([z.string().min(1), z.array(message).min(1)]).default('{prompt}'),
  /** Only the first so many rows. */
  limit: count.optional(),
  weight,
  /** The columns that the agent can read, in `row.json`. The others, such as the answer, stay hidden from it. */
  columns: z.array(z.string().min(1)).default([]),
  /** The reward of these rows; absent: the run file's `reward`. */
  reward: reward.optional(),
});

export type RowsSource = z.output<typeof rowsSource>;

/** An entry of a run file's `tasks`. */
export const taskSource = z.union([z.string().min(1), folderSource, rowsSource]);
export type TaskSource = z.output<typeof taskSource>;

export const isRows = (source: TaskSource): source is RowsSource => typeof source !== 'string' && 'rows' in source;

/** Returns the text that identifies a source's rows within a run: `openai/gsm8k/main:test`. */
export const rowsLabel = ({ rows, name, split }: Pick<RowsSource, 'rows' | 'name' | 'split'>): string =>
  `${rows}${name === undefined ? '' : `/${name}`}${split === 'train' ? '' : `:${split}`}`;

/** Returns the text by which records and workflows call the task of a row: `data/train.jsonl#17`. The first row is 0. */
export const rowTask = (label: string, index: number): string => `${label}#${index}`;

/** Returns the parts of a row's task, or null for a task that is a folder. */
export function parseRowTask(task: string): { label: string; index: number } | null {
  const found = /^(.+)#(\d+)$/s.exec(task);
  return found?.[1] === undefined ? null : { label: found[1], index: Number(found[2]) };
}
