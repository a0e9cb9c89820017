import { meantRun } from '../../activities/run/unknown-run.ts';
import { connectionsOf } from '../config/connections.ts';
import type { Deployment } from '../config/schema.ts';
import { readTrial } from '../../store/queries/find-trials.ts';
import { readRunHead } from '../../store/queries/read-run-head.ts';
import { TrialgateError } from '../../core/errors.ts';
import { isTrialId, RUN_ID } from '../../core/ids.ts';
import { withRunningStore } from './connect.ts';

/** Returns the address of the page on runs, without its key. */
export const pageUrl = (deployment: Deployment): string => `${connectionsOf(deployment).gatewayUrl}/ui/`;

/**
 * Returns the address of the page, or of its view of a run or a trial, with the admin key or the one that only reads. The key comes after `#`:
 * a browser sends that part to no server, and the page removes it at once.
 */
export async function pageAddress(
  deployment: Deployment,
  id: string | undefined,
  { readOnly = false } = {},
): Promise<string> {
  const key = readOnly ? readKeyOf(deployment) : connectionsOf(deployment).adminKey;
  const view = id === undefined ? '' : await viewOf(deployment, id);
  return `${pageUrl(deployment)}${view}#key=${encodeURIComponent(key)}`;
}

async function viewOf(deployment: Deployment, id: string): Promise<string> {
  return withRunningStore(deployment, async (db) => {
    if (RUN_ID.test(id) && (await readRunHead(db, id))) return `runs/${encodeURIComponent(id)}`;
    if (isTrialId(id) && (await readTrial(db, id))) return `trials/${encodeURIComponent(id)}`;
    throw new TrialgateError(
      'not_found',
      `there is no run and no trial ${id}${await meantRun(db, id)}: "npx trialgate show" lists all runs`,
    );
  });
}

function readKeyOf({ read_key: key }: Deployment): string {
  if (key !== undefined) return key;
  throw new TrialgateError(
    'missing_prerequisite',
    'no read-only key is set here: set `read_key` in trialgate.yaml (or TRIALGATE_READ_KEY), start the deployment with it, and ask again',
  );
}
