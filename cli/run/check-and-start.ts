import { checkRows } from '../../activities/tasks/store-rows.ts';
import { checkRun, installPackages } from '../../activities/run/check-run.ts';
import { requireRunId } from '../../core/ids.ts';
import type { RunConfig } from '../../core/run-config/run-config.ts';
import type { Database } from '../../store/database.ts';
import { connectionsOf } from '../config/connections.ts';
import type { Deployment } from '../config/schema.ts';
import { checkLoggers } from '../log/check-loggers.ts';
import { requireModel } from '../models/require-model.ts';
import { requireTrainable } from '../models/require-trainable.ts';
import { livingState } from '../supervisor/state.ts';
import { checkEngines, requireForRuns, requireReplicas } from './check-engines.ts';
import { withDeployment, type DeploymentClients } from './connect.ts';
import { enginesOf, printRunNotices } from './run-notices.ts';
import { requireFreeRun, startRun } from './start-run.ts';
import { tryBeforeStart } from './try-before-start.ts';

export type StartOptions = {
  deployment: Deployment;
  /** False starts the run without asking its engines and trying its agents. */
  check?: boolean;
  /** Gets what is done, and warnings. */
  report: (line: string) => void;
};

const UNCHECKED =
  'WARNING: --no-check: neither the model and the engines nor agents and verifiers were tried. If one of them cannot work, the run is blocked after its start';

/**
 * Checks a run, and starts it when nothing is wrong. `started` is called then, with a sentence about it.
 * @param config the settings of a run file, with their paths resolved
 * @throws TrialgateError with what is wrong; then no run was made
 */
export async function checkAndStart(
  config: RunConfig,
  runId: string,
  { deployment, check = true, report }: StartOptions,
  signal: AbortSignal,
  started: (connected: DeploymentClients, said: string) => Promise<void>,
): Promise<void> {
  const { home } = deployment;
  requireRunId(runId);
  await checkLoggers(config.loggers);
  await checkRun(config, null);
  if (!check) report(UNCHECKED);
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
      if (warning !== null) report(`WARNING: ${warning}`);
    } else requireForRuns(engines);
    await installPackages(config, { home, signal, report });
    await checkRows(config, home);
    await printRunNotices(connected.db, config, { check, report });
    if (check) report(await tryAll(connected.db, config, { deployment, report }, signal));
    signal.throwIfAborted();
    await startRun(connected.client, runId, config);
    await started(connected, startedText(runId, config));
  });
}

function startedText(runId: string, { rollouts }: RunConfig): string {
  const said = `run ${runId} started: npx trialgate show ${runId}`;
  if (rollouts !== 'external') return said;
  return `${said}\nit waits for your program: export $(npx trialgate key ${runId}), then start it (docs/external.md)`;
}

/** Tries agents and verifiers. Returns a sentence about the result. */
function tryAll(
  db: Database,
  config: RunConfig,
  { deployment, report }: StartOptions,
  signal: AbortSignal,
): Promise<string> {
  const { home, unsandboxed } = deployment;
  const { gatewayUrl, secret } = connectionsOf(deployment);
  return tryBeforeStart(config, { db, gatewayUrl, secret, home, unsandboxed, report }, signal);
}
