import { basename, extname } from 'node:path';
import { readRun } from '../../activities/run/read-run.ts';
import { resolvePaths } from '../../activities/run/resolve-paths.ts';
import { parseRunConfig } from '../../core/run-config/parse-run-config.ts';
import type { RunStart, VerbReply } from '../../gateway/http/openapi/run-schemas.ts';
import type { Deployment } from '../config/schema.ts';
import { checkAndStart } from './check-and-start.ts';
import { withRunningStore } from './connect.ts';
import { defaultRunName } from './name-run.ts';
import { parseSettings } from './read-run-file.ts';
import { livingState } from '../supervisor/state.ts';
import { requireKnownReach } from './require-known-reach.ts';

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
  const base = as === undefined ? null : await withRunningStore(deployment, (db) => readRun(db, as));
  // The gateway is not told all settings of its deployment.
  const { model: running, unsandboxed } = livingState(deployment.home)?.settings ?? {};
  requireKnownReach(config, { base, model: typeof running === 'string' ? running : deployment.model });
  const runId = given ?? defaultRunName(as ?? basename(name, extname(name)));
  let message = '';
  const here = { ...deployment, unsandboxed: deployment.unsandboxed || unsandboxed === true };
  await checkAndStart(config, runId, { deployment: here, report }, signal, async (_connected, said) => {
    message = said;
  });
  return { run_id: runId, message };
}
