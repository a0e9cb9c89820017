import { checkRun } from '../../activities/run/check-run.ts';
import { forkBase } from '../../activities/run/fork-base.ts';
import { mergeSettings } from '../../core/run-config/merge-settings.ts';
import { parseRunConfig } from '../../core/run-config/parse-run-config.ts';
import { readRun } from '../../activities/run/read-run.ts';
import { resolvePaths } from '../../activities/run/resolve-paths.ts';
import { TrialgateError } from '../../core/errors.ts';
import { requireRunId } from '../../core/ids.ts';
import type { RelayRoute } from '../../activities/pool/get-from-engine.ts';
import { checkLoggers } from '../log/check-loggers.ts';
import { NO_RELAY, requireForRuns, requireReplicas, requireSameModel } from './check-engines.ts';
import type { DeploymentClients } from './connect.ts';
import type { Policy } from './name-run.ts';
import { enginesOf, printRunNotices } from './run-notices.ts';
import { requireKnownReach } from './require-known-reach.ts';
import { startRun } from './start-run.ts';

/**
 * Starts a new run whose version 0 is a policy version of another run. It has that run's settings, except for `changes`. Returns a sentence
 * about it.
 * @param check if false, the run starts also when an engine has another model, or when no call could be trained on
 * @param relay the way to engines behind relay workers
 * @param report gets the warnings
 * @param isSent true for `changes` that came over the network, which may not reach more than the run
 * @throws TrialgateError `bad_input`; then no run was made
 */
export async function forkRun(
  { client, db }: DeploymentClients,
  from: Policy,
  runId: string,
  changes: Record<string, unknown>,
  { check = true, relay = NO_RELAY, report, isSent = false }: Options = {},
): Promise<string> {
  requireRunId(runId);
  if ('model' in changes)
    throw new TrialgateError(
      'bad_input',
      `\`model\` is ${from.runId}@${from.version} in a fork: to train another model, start a new run`,
    );
  const base = await readRun(db, from.runId);
  const config = resolvePaths(parseRunConfig(mergeSettings(base, changes), 'the fork'));
  if (isSent) requireKnownReach(config, { base: resolvePaths(base) });
  await checkLoggers(config.loggers);
  await checkRun(config, null);
  const engines = await enginesOf(db, config);
  if (check) {
    await requireSameModel(db, config, relay);
    requireReplicas(engines, config);
  } else requireForRuns(engines);
  await printRunNotices(db, config, { check, report });
  await forkBase(db, { runId, config, from });
  await startRun(client, runId, config);
  return `run ${runId} started from ${from.runId}@${from.version}: npx trialgate show ${runId}`;
}

type Options = {
  check?: boolean;
  relay?: RelayRoute;
  report?: (line: string) => void;
  isSent?: boolean;
};
