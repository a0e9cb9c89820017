import { basename, extname } from 'node:path';
import { checkRows } from '../../activities/tasks/store-rows.ts';
import { checkRun, installPackages } from '../../activities/run/check-run.ts';
import type { Deployment } from '../config/schema.ts';
import { TrialgateError } from '../../core/errors.ts';
import { requireRunId } from '../../core/ids.ts';
import { readRunRecord, type RunRecord } from '../show/run-record.ts';
import { runTable } from '../show/run-table.ts';
import type { RunConfig } from '../../core/run-config/run-config.ts';
import type { Database } from '../../store/database.ts';
import { checkLoggers } from '../log/check-loggers.ts';
import { connectionsOf } from '../config/connections.ts';
import { requireModel } from '../models/require-model.ts';
import { requireTrainable } from '../models/require-trainable.ts';
import { livingState } from '../supervisor/state.ts';
import { cancelRun } from './cancel-run.ts';
import { checkEngines, requireForRuns, requireReplicas } from './check-engines.ts';
import { tryBeforeStart } from './try-before-start.ts';
import { withDeployment, type DeploymentClients } from './connect.ts';
import { defaultRunName } from './name-run.ts';
import { readRunFile } from './read-run-file.ts';
import { enginesOf, printRunNotices } from './run-notices.ts';
import { requireFreeRun, startRun } from './start-run.ts';
import { canResume, watchRun } from './watch-run.ts';

export type TrainOptions = {
  deployment: Deployment;
  run?: string;
  iterations?: string;
  detach?: boolean;
  json?: boolean;
  cancelOnFailure?: boolean;
  /** True when the caller stops the deployment at the run's end, so that no command can be advised that needs it. */
  stopsAfterwards?: boolean;
  /** False starts the run without asking its engines and trying its agents. */
  check?: boolean;
};

const UNCHECKED =
  'WARNING: --no-check: neither the model and the engines nor agents and verifiers were tried. If one of them cannot work, the run is blocked after its start';

/** Starts a run and watches it. Ctrl-C ends only the watching. With `cancelOnFailure` a run that does not complete is cancelled, so that it releases its engines. */
export async function trainFile(file: string, options: TrainOptions, signal: AbortSignal): Promise<string> {
  const config = await readRunFile(
    file,
    options.iterations === undefined ? {} : { iterations: wholeNumber(options.iterations, '--iterations') },
  );
  const { deployment, check = true } = options;
  const { home } = deployment;
  const runId = options.run ?? defaultRunName(basename(file, extname(file)));
  requireRunId(runId);
  await checkLoggers(config.loggers);
  await checkRun(config, null);
  if (!check) console.error(UNCHECKED);
  // The model of a deployment without a supervisor here is on other machines.
  if (check && livingState(home) !== null)
    await requireModel(config.model, { home, override: ', or start the run with --no-check' }, signal);
  await withDeployment(deployment, async (connected) => {
    await requireFreeRun(connected, runId);
    const engines = await enginesOf(connected.db, config);
    if (check) {
      await checkEngines(engines, config, connectionsOf(deployment), { home });
      requireReplicas(engines, config);
      const warning = await requireTrainable(config, deployment, signal);
      if (warning !== null) console.error(`WARNING: ${warning}`);
    } else requireForRuns(engines);
    await installPackages(config, { home, signal, report: (line) => console.error(line) });
    await checkRows(config, home);
    await printRunNotices(connected.db, config, { check });
    if (check) await tryAll(connected.db, config, deployment, signal);
    await startRun(connected.client, runId, config);
    console.error(`run ${runId} started: npx trialgate show ${runId}`);
    if (config.rollouts === 'external')
      console.error(
        `it waits for your program: export $(npx trialgate key ${runId}), then start it (docs/external.md)`,
      );
    if (!options.detach) await watchAndPrint(connected, runId, options, signal);
  });
  return runId;
}

/** Tries agents and verifiers. */
async function tryAll(db: Database, config: RunConfig, deployment: Deployment, signal: AbortSignal): Promise<void> {
  const { home, unsandboxed } = deployment;
  const { gatewayUrl, secret } = connectionsOf(deployment);
  const place = { db, gatewayUrl, secret, home, unsandboxed, report: (line: string) => console.error(line) };
  console.error(await tryBeforeStart(config, place, signal));
}

/** Watches a run, and prints its record and the next commands when it has completed. */
export async function watchAndPrint(
  connected: DeploymentClients,
  runId: string,
  options: Pick<TrainOptions, 'json' | 'cancelOnFailure' | 'stopsAfterwards'>,
  signal: AbortSignal,
): Promise<void> {
  try {
    await watchRun(connected, runId, signal);
  } catch (error) {
    if (options.cancelOnFailure) {
      const goOn = canResume(error) ? `; to continue it: npx trialgate up, then npx trialgate resume ${runId}` : '';
      console.error(`cancelling run ${runId}: npx trialgate show ${runId} shows it afterwards${goOn}`);
      const how = `cancelled because its quickstart ${signal.aborted ? 'was interrupted' : 'ended'}`;
      await cancelRun(connected, runId, how).catch(() => {});
    } else if (signal.aborted)
      console.error(
        `run ${runId} goes on: "npx trialgate resume ${runId}" watches it again, "npx trialgate show ${runId}" shows its state`,
      );
    throw error;
  }
  const record = await readRunRecord(connected.db, runId);
  console.log(options.json ? JSON.stringify(record, null, 2) : runTable(record));
  if (!options.json && !options.stopsAfterwards) console.error(nextCommands(record));
}

function nextCommands({ run, iterations }: Pick<RunRecord, 'run' | 'iterations'>): string {
  const isTrained = iterations.some(({ trained_version: version }) => version !== null);
  const open = `npx trialgate open ${run} (curves and transcripts)`;
  return `next: ${open}${isTrained ? `, npx trialgate export ${run} FOLDER (the trained model)` : ''}`;
}

export function wholeNumber(text: string, flag: string): number {
  if (/^\d+$/.test(text)) return Number(text);
  throw new TrialgateError('bad_input', `${flag}: expected a number such as 3, found ${JSON.stringify(text)}`);
}
