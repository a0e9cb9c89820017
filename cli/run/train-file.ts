import { basename, extname } from 'node:path';
import type { Deployment } from '../config/schema.ts';
import { TrialgateError } from '../../core/errors.ts';
import { readRunRecord, type RunRecord } from '../show/run-record.ts';
import { runTable } from '../show/run-table.ts';
import { cancelRun } from './cancel-run.ts';
import { checkAndStart } from './check-and-start.ts';
import type { DeploymentClients } from './connect.ts';
import { defaultRunName } from './name-run.ts';
import { readRunFile } from './read-run-file.ts';
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

/** Starts a run and watches it. Ctrl-C ends only the watching. With `cancelOnFailure` a run that does not complete is cancelled, so that it releases its engines. */
export async function trainFile(file: string, options: TrainOptions, signal: AbortSignal): Promise<string> {
  const config = await readRunFile(
    file,
    options.iterations === undefined ? {} : { iterations: wholeNumber(options.iterations, '--iterations') },
  );
  const runId = options.run ?? defaultRunName(basename(file, extname(file)));
  const { deployment, check } = options;
  const report = (line: string): void => console.error(line);
  await checkAndStart(config, runId, { deployment, check, report }, signal, async (connected, said) => {
    report(said);
    if (!options.detach) await watchAndPrint(connected, runId, options, signal);
  });
  return runId;
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
