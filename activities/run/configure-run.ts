import { eq } from 'drizzle-orm';
import { TrialgateError } from '../../core/errors.ts';
import { runs } from '../../store/schema.ts';
import { checkRun } from './check-run.ts';
import type { Deps } from '../deps.ts';
import { mergeSettings } from '../../core/run-config/merge-settings.ts';
import { parseRunConfig } from '../../core/run-config/parse-run-config.ts';
import { checkRows, missingSources, storeRows } from '../tasks/store-rows.ts';
import { nonRetryable } from '../temporal/non-retryable.ts';
import { resolvePaths } from './resolve-paths.ts';
import { isRows, rowsLabel } from '../../core/run-config/task-source.ts';
import { readRun } from './read-run.ts';
import { unknownRun } from './unknown-run.ts';
import { isSameTask, runConfig, type RunConfig } from '../../core/run-config/run-config.ts';

/** The settings that never change: they define the run, or make the trials of one group alike. */
const FIXED = [
  'model',
  'rollouts',
  'tasks',
  'reward',
  'agents',
  'network',
  'engines',
  'head_dtype',
  'lora_rank',
  'lora_alpha',
  'target_modules',
  'seed',
  'sampling',
  'constrained_decoding',
  'keep_thinking',
  'chat_template_kwargs',
  'budgets',
  'max_prompt_length',
  'max_response_length',
  'loggers',
];

/** Changes settings of a run and returns all of them. With one invalid value nothing changes, and the failure (`bad_input`) names it. */
export const configureRun =
  (deps: Deps) =>
  (input: { runId: string; changes: Record<string, unknown> }): Promise<RunConfig> =>
    nonRetryable(async () => {
      const { runId, changes } = input;
      refuse(runId, changes);
      // A download or an installation may take longer than a transaction may, so they come first.
      if ('evaluation' in changes) await checkEvaluation(deps, input);
      return deps.db.transaction(async (tx) => {
        const [run] = await tx.select({ config: runs.config }).from(runs).where(eq(runs.id, runId)).for('update');
        if (!run) throw await unknownRun(tx, runId);
        const config = changed(run.config, changes);
        if ('evaluation' in changes) await storeRows(tx, runId, config, deps.home);
        await tx.update(runs).set({ config }).where(eq(runs.id, runId));
        return config;
      });
    });

const changed = (config: unknown, changes: Record<string, unknown>): RunConfig =>
  resolvePaths(parseRunConfig(mergeSettings(runConfig.parse(config), changes), 'the change'));

/** Checks changed held-out tasks, and downloads and installs what they need. */
async function checkEvaluation(
  { db, home }: Deps,
  { runId, changes }: { runId: string; changes: Record<string, unknown> },
): Promise<void> {
  const before = await readRun(db, runId);
  const config = changed(before, changes);
  // Stored rows are not read again.
  for (const source of config.evaluation.tasks.filter(isRows)) {
    const known = before.evaluation.tasks.filter(isRows).find((each) => rowsLabel(each) === rowsLabel(source));
    if (known && !isSameTask(known, source))
      throw new TrialgateError(
        'bad_input',
        `evaluation.tasks: the run has the rows ${rowsLabel(source)} with another prompt, reward, limit or columns: fork it (npx trialgate fork ${runId}@VERSION)`,
      );
  }
  await checkRun(config, { home, signal: new AbortController().signal });
  await checkRows(config, home, await missingSources(db, runId, config));
}

/** Refuses changes of the wrong form and of fixed settings. Temporal's CLI can send anything. */
function refuse(runId: string, changes: unknown): void {
  if (changes === null || typeof changes !== 'object' || Array.isArray(changes) || Object.keys(changes).length === 0) {
    throw new TrialgateError(
      'bad_input',
      `expected settings such as {"optim": {"lr": 1e-5}}, found ${JSON.stringify(changes)}`,
    );
  }
  const fixed = FIXED.filter((key) => key in changes);
  if (fixed.length === 0) return;
  const names = fixed.map((key) => `\`${key}\``).join(', ');
  throw new TrialgateError(
    'bad_input',
    `${names} cannot change while a run is under way: fork it instead (npx trialgate fork ${runId}@VERSION)`,
  );
}
