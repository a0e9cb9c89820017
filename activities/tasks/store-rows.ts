import { eq } from 'drizzle-orm';
import { TrialgateError } from '../../core/errors.ts';
import { stringifyExact } from '../../core/exact-json.ts';
import { isStorable, type JsonObject } from '../../core/json.ts';
import { agentLabels, isAgentPath } from '../../core/run-config/agent-file.ts';
import type { RunConfig } from '../../core/run-config/run-config.ts';
import { isRows, rowsLabel, type RowsSource } from '../../core/run-config/task-source.ts';
import type { Executor, Transaction } from '../../store/queries/transaction.ts';
import { rows } from '../../store/schema.ts';
import { loadAgent } from '../sandbox/load-agent.ts';
import { cacheOf, readRows } from './read-rows.ts';
import { renderPrompt } from './render-prompt.ts';

/** Temporal lets a workflow have 2,000 pending children, and an evaluation has one for each task. */
const MAX_HELD_OUT = 1000;

/** The rows of one statement. */
const BATCH = 500;

/**
 * Reads the rows of `sources`, by default of all that a run file names, and checks each.
 * @throws TrialgateError `bad_input` that names the file, and the line or row
 */
export async function checkRows(config: RunConfig, home: string, sources = rowSources(config)): Promise<void> {
  for (const source of sources) {
    const isHeldOut = config.evaluation.tasks.includes(source);
    for await (const { index } of checkedRows(source, config, home))
      if (isHeldOut && index >= MAX_HELD_OUT)
        throw new TrialgateError(
          'bad_input',
          `evaluation.tasks: ${rowsLabel(source)} has more than ${MAX_HELD_OUT} rows, and an evaluation runs all of them: give it a \`limit\``,
        );
  }
}

/**
 * Stores the rows that a run file names and the run does not have yet.
 * @throws TrialgateError `bad_input` that names the file, and the line or row
 */
export async function storeRows(tx: Transaction, runId: string, config: RunConfig, home: string): Promise<void> {
  for (const source of await missingSources(tx, runId, config)) {
    let batch: (typeof rows.$inferInsert)[] = [];
    const flush = async () => {
      if (batch.length > 0) await tx.insert(rows).values(batch);
      batch = [];
    };
    for await (const row of checkedRows(source, config, home)) {
      batch.push({ runId, source: rowsLabel(source), ...row });
      if (batch.length === BATCH) await flush();
    }
    await flush();
  }
}

const rowSources = ({ tasks, evaluation }: RunConfig): RowsSource[] => [...tasks, ...evaluation.tasks].filter(isRows);

/** Returns the sources that a run file names and whose rows the run does not have. The files of the others may be gone. */
export async function missingSources(db: Executor, runId: string, config: RunConfig): Promise<RowsSource[]> {
  const stored = await db.selectDistinct({ source: rows.source }).from(rows).where(eq(rows.runId, runId));
  const labels = new Set(stored.map(({ source }) => source));
  // Held-out rows may be training rows too.
  const missing = new Map(rowSources(config).map((source) => [rowsLabel(source), source]));
  return [...missing].flatMap(([label, source]) => (labels.has(label) ? [] : [source]));
}

/** Reads the rows of a source. Each makes a prompt and can be stored. */
async function* checkedRows(
  source: RowsSource,
  { agents }: RunConfig,
  home: string,
): AsyncGenerator<Pick<typeof rows.$inferInsert, 'index' | 'data' | 'agent'>> {
  const known = await knownAgents(agents);
  let index = 0;
  for await (const { row, where } of readRows(source, cacheOf(home))) {
    renderPrompt(source.prompt, row, where);
    if (!isStorable(row))
      throw new TrialgateError(
        'bad_input',
        `${where}: a text has the character NUL or half a surrogate pair, which cannot be stored: remove it`,
      );
    yield { index, data: stringifyExact(row), agent: await agentOf(row, where, known) };
    index += 1;
  }
}

/** Returns the run's agents by the names that a row may use: those of their files, and the labels of bundled ones. */
async function knownAgents(agents: RunConfig['agents']): Promise<Map<string, string>> {
  const labels = agentLabels(agents);
  const named = await Promise.all(
    agents.map(async (entry, i): Promise<[string, string]> => [(await loadAgent(entry)).name, labels[i] ?? '']),
  );
  return new Map(named);
}

/** Returns the agent that a row names in its column `agent_name`, as verl's rows do: one of the run file's, or a bundled one. */
async function agentOf(row: JsonObject, where: string, known: Map<string, string>): Promise<string | null> {
  const { agent_name: name } = row;
  if (name === undefined || name === null || name === '') return null;
  const refuse = (why: string, cause?: unknown) =>
    new TrialgateError('bad_input', `${where}: agent_name: ${why}`, { cause });
  if (typeof name !== 'string') throw refuse('is not a text');
  const label = known.get(name);
  if (label !== undefined) return label;
  // Data must not choose a program of this machine.
  if (isAgentPath(name)) throw refuse(`${name} is a path: name the agent under \`agents\` of the run file`);
  await loadAgent(name).catch((cause: unknown) => {
    throw refuse(cause instanceof Error ? cause.message : String(cause), cause);
  });
  known.set(name, name);
  return name;
}
