import { PAUSE_SECONDS } from '../../workflows/messages.ts';
import type { DeploymentClients } from './connect.ts';
import { markPaused } from './mark-running.ts';
import { askRun } from './operate.ts';

/** Lets a run start nothing new for so many seconds, a day if absent, and notes it in the record. Returns the run's answer. */
export async function pauseRun(connected: DeploymentClients, runId: string, seconds?: number): Promise<string> {
  const answer = await askRun(connected, runId, 'pause', seconds === undefined ? {} : { seconds });
  if (await markPaused(connected.db, runId, seconds ?? PAUSE_SECONDS)) return answer;
  return `${answer}. The pause could not be noted in the record, so the page does not show it: "npx trialgate resume ${runId}" ends it`;
}
