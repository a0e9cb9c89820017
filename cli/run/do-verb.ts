import type { RunVerb, VerbReply } from '../../gateway/http/openapi/run-schemas.ts';
import { connectionsOf } from '../config/connections.ts';
import type { Deployment } from '../config/schema.ts';
import { cancelRun } from './cancel-run.ts';
import { withDeployment, type DeploymentClients } from './connect.ts';
import { forkRun } from './fork-run.ts';
import { defaultRunName } from './name-run.ts';
import { oneVerb } from './one-verb.ts';
import { askRun } from './operate.ts';
import { pauseRun } from './pause-run.ts';
import { parseSettings } from './read-run-file.ts';
import { redoRun } from './redo-run.ts';
import { resumeRun } from './resume-run.ts';

/** Does what the page asks of a run, as the command of that name does, and returns what the command prints. */
export function doVerb(config: Deployment, runId: string, asked: RunVerb): Promise<VerbReply> {
  return withDeployment(config, async (connected) => {
    const reply = async (): Promise<VerbReply> =>
      asked.verb === 'fork'
        ? fork(connected, config, runId, asked)
        : { run_id: runId, message: await change(connected, config, runId, asked) };
    // A cancel waits for no other verb.
    return asked.verb === 'cancel' ? reply() : oneVerb(connected.db, runId, reply);
  });
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
      return pauseRun(connected, runId, asked.seconds);
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
  { version, run_id: name = defaultRunName(runId), iterations, file }: Fork,
): Promise<VerbReply> {
  const lines: string[] = [];
  const report = (line: string): void => void lines.push(line);
  const settings = file === undefined ? {} : parseSettings(file, 'the settings of the fork');
  const changes = { ...settings, ...(iterations === undefined ? {} : { iterations }) };
  const options = { relay: connectionsOf(config), report, isSent: true };
  lines.push(await forkRun(connected, { runId, version }, name, changes, options));
  return { run_id: name, message: lines.join('\n') };
}
