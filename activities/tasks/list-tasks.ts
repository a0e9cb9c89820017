import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { and, asc, eq } from 'drizzle-orm';
import { TrialgateError } from '../../core/errors.ts';
import { agentInTurn, type AgentEntry } from '../../core/run-config/agent-file.ts';
import { hasImages, type SandboxSetting } from '../../core/run-config/sandbox.ts';
import { isRows, parseRowTask, rowsLabel, rowTask, type TaskSource } from '../../core/run-config/task-source.ts';
import type { FolderTask } from '../../core/task.ts';
import type { Executor } from '../../store/queries/transaction.ts';
import { rows } from '../../store/schema.ts';
import { isTask, loadTask } from './load-task.ts';
import { locate } from './locate.ts';

/** The tasks of one entry of a run file's `tasks`. */
export type SourceTasks = {
  tasks: string[];
  weight: number | undefined;
  /** The agents of the tasks that name one themselves. */
  agents: Map<string, string>;
};

/**
 * Returns the tasks of each source, in a form that can be stored: a folder's as it was given, so that it can be found on other machines,
 * and a row's as `rowTask` writes it.
 * @throws TrialgateError `bad_input`
 */
export function listSources(
  db: Executor,
  runId: string,
  sources: readonly TaskSource[],
  sandbox: SandboxSetting,
): Promise<SourceTasks[]> {
  return Promise.all(
    sources.map(async (source) => {
      if (isRows(source)) return { ...(await listRows(db, runId, rowsLabel(source))), weight: source.weight };
      const { folder, weight } = typeof source === 'string' ? { folder: source, weight: undefined } : source;
      return { tasks: await listFolder(folder, sandbox), weight, agents: new Map() };
    }),
  );
}

/** Returns the tasks of all sources, each once and with its agent: that of its row, else the one in turn. */
export async function listTasks(
  db: Executor,
  runId: string,
  {
    tasks: sources,
    agents,
    sandbox,
  }: { tasks: readonly TaskSource[]; agents: readonly AgentEntry[]; sandbox: SandboxSetting },
): Promise<{ task: string; agent: string }[]> {
  const lists = await listSources(db, runId, sources, sandbox);
  const own = new Map(lists.flatMap((list) => [...list.agents]));
  return [...new Set(lists.flatMap(({ tasks }) => tasks))].map((task, ordinal) => ({
    task,
    agent: own.get(task) ?? agentInTurn(agents, ordinal),
  }));
}

async function listRows(db: Executor, runId: string, label: string): Promise<Omit<SourceTasks, 'weight'>> {
  const ofSource = and(eq(rows.runId, runId), eq(rows.source, label));
  const found = await db
    .select({ index: rows.index, agent: rows.agent })
    .from(rows)
    .where(ofSource)
    .orderBy(asc(rows.index));
  if (found.length === 0) throw new TrialgateError('not_found', `run ${runId} has no rows of ${label}`);
  const agents = found.flatMap(({ index, agent }): [string, string][] =>
    agent === null ? [] : [[rowTask(label, index), agent]],
  );
  return { tasks: found.map(({ index }) => rowTask(label, index)), agents: new Map(agents) };
}

/**
 * Returns the tasks in a folder, which is a task, or has tasks; they are sorted. Every task is loaded, so that an invalid one is refused early.
 * @throws TrialgateError `bad_input`
 */
export async function listFolder(folder: string, sandbox?: SandboxSetting): Promise<string[]> {
  return (await loadFolder(folder, sandbox)).map(({ task }) => task);
}

/** Returns the tasks of `listFolder` with what was loaded. */
export async function loadFolder(
  folder: string,
  sandbox: SandboxSetting = { kind: 'bubblewrap' },
): Promise<{ task: string; loaded: FolderTask }[]> {
  const root = await locate(folder);
  const tasks = (await isTask(root)) ? [folder] : (await tasksIn(root)).map((name) => join(folder, name));
  for (const task of tasks)
    if (parseRowTask(task))
      throw new TrialgateError(
        'bad_input',
        `tasks: ${task}: a name that ends with #NUMBER is a row's: rename the folder`,
      );
  return Promise.all(
    tasks.map(async (task) => ({ task, loaded: await loadTask(task, { hasImages: hasImages(sandbox) }) })),
  );
}

async function tasksIn(root: string): Promise<string[]> {
  const entries = await readdir(root, { withFileTypes: true });
  const names = entries
    .filter((entry) => entry.isDirectory() && !entry.name.startsWith('.'))
    .map((entry) => entry.name);
  if (names.length === 0)
    throw new TrialgateError('bad_input', `tasks: ${root} is neither a task nor a folder of tasks`);
  return names.toSorted();
}
