import { and, eq } from 'drizzle-orm';
import { TrialgateError } from '../../core/errors.ts';
import { parseExact } from '../../core/exact-json.ts';
import { isObject, type JsonObject } from '../../core/json.ts';
import { rewardFunctions } from '../../core/run-config/reward.ts';
import type { RunConfig } from '../../core/run-config/run-config.ts';
import { hasImages } from '../../core/run-config/sandbox.ts';
import { isRows, parseRowTask, rowsLabel, type RowsSource } from '../../core/run-config/task-source.ts';
import { textOfMessage, type Message } from '../../core/prompt-messages.ts';
import type { RowTask, Task } from '../../core/task.ts';
import type { Executor } from '../../store/queries/transaction.ts';
import { rows } from '../../store/schema.ts';
import { LONGEST_SECONDS } from '../sandbox/limits.ts';
import { loadTask } from './load-task.ts';
import { readRows } from './read-rows.ts';
import { renderPrompt } from './render-prompt.ts';

/** The settings of a run file that make tasks of rows. */
type Settings = Pick<RunConfig, 'tasks' | 'evaluation' | 'reward' | 'deadlines' | 'sandbox'>;

/**
 * Returns a task of a run: a folder's, or a row's.
 * @throws TrialgateError `bad_input` for a folder that is no task, `not_found` for a row that the run does not have
 */
export async function findTask(db: Executor, runId: string, task: string, settings: Settings): Promise<Task> {
  const row = parseRowTask(task);
  if (!row) return loadTask(task, { hasImages: hasImages(settings.sandbox) });
  const here = and(eq(rows.runId, runId), eq(rows.source, row.label), eq(rows.index, row.index));
  const [found] = await db.select({ data: rows.data }).from(rows).where(here);
  const source = findSource(row.label, settings);
  if (!found || !source) throw new TrialgateError('not_found', `run ${runId} has no row ${task}`);
  return makeRowTask(task, parseRow(found.data), source, settings);
}

/**
 * Returns the task of a row that is read from its file, outside any run.
 * @throws TrialgateError `bad_input`
 */
export async function readRowTask(
  task: string,
  row: { label: string; index: number },
  settings: Settings,
  cache: string,
): Promise<RowTask> {
  const source = findSource(row.label, settings);
  if (!source)
    throw new TrialgateError('bad_input', `${task}: the run file has no rows ${row.label}: name it with --run FILE`);
  let index = 0;
  for await (const { row: data } of readRows({ ...source, limit: row.index + 1 }, cache))
    if (index++ === row.index) return makeRowTask(task, data, source, settings);
  throw new TrialgateError('bad_input', `${task}: ${row.label} has ${index} rows, the first of which is 0`);
}

function parseRow(data: string): JsonObject {
  const row = parseExact(data);
  if (!isObject(row)) throw new Error('a stored row is not a JSON object');
  return row;
}

const findSource = (label: string, { tasks, evaluation }: Settings): RowsSource | undefined =>
  [...tasks, ...evaluation.tasks].filter(isRows).find((source) => rowsLabel(source) === label);

/** Makes the task of a row. Its prompt was tried when the run began. */
function makeRowTask(task: string, row: JsonObject, source: RowsSource, { reward, deadlines }: Settings): RowTask {
  const prompt = renderPrompt(source.prompt, row, task);
  const messages: Message[] = typeof prompt === 'string' ? [{ role: 'user', content: prompt }] : prompt;
  const given = source.reward ?? reward;
  return {
    kind: 'row',
    name: task.slice(task.lastIndexOf('/') + 1),
    row,
    prompt,
    messages,
    columns: source.columns,
    rewards: given === null ? {} : rewardFunctions(given),
    instruction: messages
      .map((message) => (messages.length === 1 ? textOfMessage(message) : asText(message)))
      .join('\n\n'),
    // The run's own deadline ends an agent on a row, which a person may move.
    agent: { timeoutSec: LONGEST_SECONDS },
    verifier: { timeoutSec: deadlines.trial, env: {} },
    environment: { cpus: 1, memoryMb: 2048, storageMb: 10240, env: {} },
  };
}

const asText = (message: Message): string =>
  message.role === 'user' ? textOfMessage(message) : `[${message.role}]\n${textOfMessage(message)}`;
