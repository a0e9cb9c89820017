import { basename, extname } from 'node:path';
import { readRun } from '../../activities/run/read-run.ts';
import { resolvePaths } from '../../activities/run/resolve-paths.ts';
import { TrialgateError } from '../../core/errors.ts';
import { parseRunConfig } from '../../core/run-config/parse-run-config.ts';
import type { RunStart, VerbReply } from '../../gateway/http/openapi/run-schemas.ts';
import type { Deployment } from '../config/schema.ts';
import { checkAndStart } from './check-and-start.ts';
import { withRunningStore } from './connect.ts';
import { defaultRunName } from './name-run.ts';
import { parseSettings } from './read-run-file.ts';
import { livingState } from '../supervisor/state.ts';
import { requireKnownReach } from './require-known-reach.ts';

/** The gateway checks one sent file after the other, and nobody can end a check. */
const MOST_TRIED = 50;

/**
 * Starts the run of a run file that was sent to the gateway, as `train` does with a file. Its relative paths are those of a file in the
 * project's folder.
 * @param report gets what is done, and warnings
 * @throws TrialgateError as `train` does, and for settings that reach what neither is bundled nor has the earlier run; then no run was made
 */
export async function startSent(
  deployment: Deployment,
  { file, file_name: name = 'the run file', as, run_id: given }: RunStart,
  report: (line: string) => void,
  signal: AbortSignal,
): Promise<VerbReply> {
  const config = resolvePaths(parseRunConfig(parseSettings(file, name), name));
  if (config.agents.length + config.tasks.length > MOST_TRIED)
    throw new TrialgateError(
      'bad_input',
      `a run file that is sent to the gateway names at most ${MOST_TRIED} agents and sources of tasks, because each is tried before the run starts: name folders that have several tasks, or use "npx trialgate train FILE"`,
    );
  const base = as === undefined ? null : resolvePaths(await withRunningStore(deployment, (db) => readRun(db, as)));
  // The gateway is not told all settings of its deployment.
  const { model: running, unsandboxed } = livingState(deployment.home)?.settings ?? {};
  const isConfined = !deployment.unsandboxed && unsandboxed !== true;
  requireKnownReach(config, { base, isConfined, model: typeof running === 'string' ? running : deployment.model });
  const runId = given ?? defaultRunName(as ?? basename(name, extname(name)));
  let message = '';
  const here = { ...deployment, unsandboxed: deployment.unsandboxed || unsandboxed === true };
  await checkAndStart(config, runId, { deployment: here, report }, signal, async (_connected, said) => {
    message = said;
  });
  return { run_id: runId, message };
}
