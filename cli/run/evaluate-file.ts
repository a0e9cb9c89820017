import { checkRun, installPackages } from '../../activities/run/check-run.ts';
import type { RelayRoute } from '../../activities/pool/get-from-engine.ts';
import { checkRows, storeRows } from '../../activities/tasks/store-rows.ts';
import { isForRuns } from '../../core/engine-url.ts';
import { TrialgateError } from '../../core/errors.ts';
import type { RunConfig } from '../../core/run-config/run-config.ts';
import type { Database } from '../../store/database.ts';
import { runs } from '../../store/schema.ts';
import { checkServer } from './check-server.ts';
import type { DeploymentClients } from './connect.ts';
import { readRunFile } from './read-run-file.ts';
import { requireEngineUrl } from './require-engine-url.ts';
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
 * @throws TrialgateError `bad_input` when the file or an engine is wrong, `missing_prerequisite` when a server does not list its models; then no run was made
 */
export async function openEvaluation(
  connected: DeploymentClients,
  { file, engines, runId, hasTasks }: EvaluatedFile,
  { home, relay, report }: Place,
  signal: AbortSignal,
): Promise<void> {
  const { db } = connected;
  await requireFreeRun(connected, runId, 'evaluate');
  const config = await readServed(db, file, engines);
  if (config.evaluation.tasks.length === 0 && !hasTasks)
    throw new TrialgateError('bad_input', `${file} names no held-out tasks: say which ones (--tasks FOLDER)`);
  // The training tasks, which may be many, are neither sampled nor stored.
  const heldOut = { ...config, tasks: [] };
  await checkRun(heldOut, null);
  for (const engine of config.engines) await checkServer(engine, relay, { report });
  await installPackages(heldOut, { home, signal, report });
  await checkRows(heldOut, home);
  if (config.loggers.length > 0)
    report(
      `the file's loggers get nothing by themselves, because loggers follow a run's training: "npx trialgate export-metrics ${runId} --to LOGGER" writes its evaluations to a logger`,
    );
  await db.transaction(async (tx) => {
    // A logger that followed this run would find it ended without an evaluation, and be closed for good.
    const stored = { ...config, loggers: [] };
    await tx.insert(runs).values({ id: runId, config: stored, status: 'completed', endedAt: new Date() });
    await storeRows(tx, runId, heldOut, home);
  });
}

/** Reads a run file as one that trains nothing on these servers, the file's, or the deployment's. */
async function readServed(db: Database, file: string, named: string[] | undefined): Promise<RunConfig> {
  named?.forEach(requireEngineUrl);
  const asked = await readRunFile(file, { iterations: 0, ...(named ? { engines: named } : {}) });
  const engines = await enginesOf(db, asked);
  const [first] = engines;
  engines.forEach(requireEngineUrl);
  if (first !== undefined && !isForRuns(first)) return readRunFile(file, { iterations: 0, engines });
  throw new TrialgateError(
    'bad_input',
    first === undefined
      ? 'no engine is registered: name a server with --engine (`npx trialgate evaluate --help`)'
      : `${first} is a vLLM or an SGLang, to which a run publishes the file's model: \`npx trialgate train ${file} --iterations 0\` evaluates that there. To evaluate what another server serves, name it with --engine (\`npx trialgate evaluate --help\`)`,
  );
}
