import { setTimeout as sleep } from 'node:timers/promises';
import { asc, inArray } from 'drizzle-orm';
import { openDatabase } from '../../store/database.ts';
import { runs } from '../../store/schema.ts';
import { connectionsOf } from '../config/connections.ts';
import type { Deployment } from '../config/schema.ts';
import type { Asked } from '../options.ts';
import { settingsNotGiven } from './settings-not-given.ts';
import type { StackState } from './state.ts';
import { upCommand } from './up-command.ts';

/** A stop waits no longer than this for the store, which may be what is broken. */
const PATIENCE_MS = 2000;

export type OpenRun = { id: string; status: string };

/** Returns the runs under way in a deployment that is up. There are none if the store does not answer at once. */
export async function runsAtStop(config: Deployment, patienceMs = PATIENCE_MS): Promise<OpenRun[]> {
  const late = sleep(patienceMs, [], { ref: false });
  return Promise.race([readOpenRuns(config), late]).catch(() => []);
}

/** Says how the runs go on that stopped with a deployment of this state. */
export function howRunsGoOn(asked: Asked, state: StackState, open: readonly OpenRun[]): string[] {
  if (open.length === 0) return [];
  const up = `\`${upAgain(asked, state)}\``;
  const ids = (wanted: string): string[] => open.filter(({ status }) => status === wanted).map(({ id }) => id);
  const resumes = (id: string): string => `after ${up}, \`npx trialgate resume ${id}\` goes on with it`;
  const running = ids('running');
  const them = running.length === 1 ? 'it' : 'them';
  const unless = state.cancels_its_run
    ? ', but for the run of the quickstart itself, which is cancelled: `npx trialgate resume` of it goes on'
    : '';
  const stopped =
    running.length > 0
      ? [`stopped in the middle: run ${running.join(', run ')}. ${up} goes on with ${them}${unless}`]
      : [];
  return [...stopped, ...ids('blocked').map((id) => `blocked: run ${id}; ${resumes(id)}`)];
}

/** Returns the command that starts the deployment as it ran. A stop does not fail because its settings cannot be compared. */
function upAgain(asked: Asked, { settings, ready_settings: ready }: StackState): string {
  try {
    return upCommand(asked, settingsNotGiven(asked, settings ?? ready));
  } catch {
    return upCommand(asked);
  }
}

async function readOpenRuns(config: Deployment): Promise<OpenRun[]> {
  const db = openDatabase(connectionsOf(config).databaseUrl, { maxConnections: 1 });
  const open = db
    .select({ id: runs.id, status: runs.status })
    .from(runs)
    .where(inArray(runs.status, ['running', 'blocked']))
    .orderBy(asc(runs.createdAt));
  // A connection that hangs also hangs at its end, and the process does not wait for it.
  return open.finally(() => void db.$client.end().catch(() => {}));
}
