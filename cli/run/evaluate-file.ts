import { checkRun, installPackages } from '../../activities/run/check-run.ts';
import type { RelayRoute } from '../../activities/pool/get-from-engine.ts';
import { checkRows, storeRows } from '../../activities/tasks/store-rows.ts';
import { isForRuns } from '../../core/engine-url.ts';
import { TrialgateError } from '../../core/errors.ts';
import type { RunConfig } from '../../core/run-config/run-config.ts';
import { ENGINE_URL, ENGINE_URL_FORMS } from '../../gateway/engines/url-forms.ts';
import type { Database } from '../../store/database.ts';
import { runs } from '../../store/schema.ts';
import { checkLoggers } from '../log/check-loggers.ts';
import { checkServer } from './check-server.ts';
import type { DeploymentClients } from './connect.ts';
import { readRunFile } from './read-run-file.ts';
import { enginesOf } from './run-notices.ts';
import { requireFreeRun } from './start-run.ts';

export type EvaluatedFile = {
  /** A run file. Nothing of it is trained. */
  file: string;
  /** The servers to evaluate; absent: those that the file names, else the deployment's. */
  engines?: string[];
  /** The name of the new run. */
  runId: string;
  /** True when the held-out tasks are named elsewhere. */
  hasTasks: boolean;
};

type Place = { home: string; relay: RelayRoute; report: (line: string) => void };

/**
 * Opens a run in which nothing is trained, so that the tasks of a run file can be evaluated with the model that a server of OpenAI's
 * completions serves. Such a server takes no weights, so the run has no policy version, and no workflow but its evaluations.
 * @throws TrialgateError `bad_input` when the file or an engine is wrong, `missing_prerequisite` when a server is not there; then no run was made
 */
export async function openEvaluation(
  connected: DeploymentClients,
  { file, engines, runId, hasTasks }: EvaluatedFile,
  { home, relay, report }: Place,
  signal: AbortSignal,
): Promise<void> {
  const { db } = connected;
  await requireFreeRun(connected, runId);
  const config = await readServed(db, file, engines);
  if (config.evaluation.tasks.length === 0 && !hasTasks)
    throw new TrialgateError('bad_input', `${file} names no held-out tasks: say which ones (--tasks FOLDER)`);
  await checkLoggers(config.loggers);
  await checkRun(config, null);
  // Only the gateways have the keys.
  for (const engine of config.engines) await checkServer(engine, relay, null);
  await installPackages(config, { home, signal, report });
  await checkRows(config, home);
  await db.transaction(async (tx) => {
    await tx.insert(runs).values({ id: runId, config, status: 'completed', endedAt: new Date() });
    await storeRows(tx, runId, config, home);
  });
}

/** Reads a run file as one that trains nothing on these servers, the file's, or the deployment's. */
async function readServed(db: Database, file: string, named: string[] | undefined): Promise<RunConfig> {
  const asked = await readRunFile(file, { iterations: 0, ...(named ? { engines: named } : {}) });
  const engines = await enginesOf(db, asked);
  const [first] = engines;
  const wrong = engines.find((url) => !ENGINE_URL.test(url));
  if (wrong !== undefined) throw new TrialgateError('bad_input', `${wrong} is no engine: expected ${ENGINE_URL_FORMS}`);
  if (first !== undefined && !isForRuns(first)) return readRunFile(file, { iterations: 0, engines });
  throw new TrialgateError(
    'bad_input',
    first === undefined
      ? 'no engine is registered: name a server with --engine (`npx trialgate evaluate --help`)'
      : `${first} is a vLLM or an SGLang, to which a run publishes the file's model: \`npx trialgate train ${file} --iterations 0\` evaluates that there. To evaluate what another server serves, name it with --engine (\`npx trialgate evaluate --help\`)`,
  );
}
