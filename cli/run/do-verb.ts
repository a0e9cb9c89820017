import type { RunVerb, VerbReply } from '../../gateway/http/openapi/run-schemas.ts';
import { connectionsOf } from '../config/connections.ts';
import type { Deployment } from '../config/schema.ts';
import { cancelRun } from './cancel-run.ts';
import { withDeployment, type DeploymentClients } from './connect.ts';
import { forkRun } from './fork-run.ts';
import { defaultRunName } from './name-run.ts';
import { askRun } from './operate.ts';
import { redoRun } from './redo-run.ts';
import { resumeRun } from './resume-run.ts';

/** Does what the page asks of a run, as the command of that name does, and returns what the command prints. */
export function doVerb(config: Deployment, runId: string, asked: RunVerb): Promise<VerbReply> {
  return withDeployment(config, async (connected) =>
    asked.verb === 'fork'
      ? fork(connected, config, runId, asked)
      : { run_id: runId, message: await change(connected, config, runId, asked) },
  );
}

type Fork = Extract<RunVerb, { verb: 'fork' }>;

async function change(
  connected: DeploymentClients,
  config: Deployment,
  runId: string,
  asked: Exclude<RunVerb, Fork>,
): Promise<string> {
  switch (asked.verb) {
    case 'pause':
      return askRun(connected, runId, 'pause', asked.seconds === undefined ? {} : { seconds: asked.seconds });
    case 'stop':
      return askRun(connected, runId, 'stop');
    case 'resume': {
      const options = { retryFailed: asked.retry_failed ?? false, relay: connectionsOf(config) };
      return (await resumeRun(connected, runId, options)).answer;
    }
    case 'cancel':
      return cancelRun(connected, runId);
    case 'redo':
      return redoRun(connected, runId, connectionsOf(config), asked);
  }
}

async function fork(
  connected: DeploymentClients,
  config: Deployment,
  runId: string,
  { version, run_id: name = defaultRunName(runId), iterations }: Fork,
): Promise<VerbReply> {
  const lines: string[] = [];
  const report = (line: string): void => void lines.push(line);
  const changes = iterations === undefined ? {} : { iterations };
  const options = { relay: connectionsOf(config), report };
  lines.push(await forkRun(connected, { runId, version }, name, changes, options));
  return { run_id: name, message: lines.join('\n') };
}
