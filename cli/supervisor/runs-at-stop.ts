import { setTimeout as sleep } from 'node:timers/promises';
import { asc, inArray } from 'drizzle-orm';
import { openDatabase } from '../../store/database.ts';
import { runs } from '../../store/schema.ts';
import { connectionsOf } from '../config/connections.ts';
import type { Deployment } from '../config/schema.ts';
import type { Asked } from '../options.ts';
import { settingsNotGiven } from './settings-not-given.ts';
import { livingState } from './state.ts';
import { upCommand } from './up-command.ts';

/** A stop waits no longer than this for the store, which may be what is broken. */
const PATIENCE_MS = 2000;

/**
 * Returns lines that say which runs stop with the deployment, and how they go on. There are none if no run is under way, or the store does
 * not answer at once.
 */
export async function runsAtStop(asked: Asked, patienceMs = PATIENCE_MS): Promise<string[]> {
  const state = livingState(asked.config.home);
  if (state === null) return [];
  const late = sleep(patienceMs, [], { ref: false });
  const open = await Promise.race([readOpenRuns(asked.config), late]).catch(() => []);
  const up = `\`${upCommand(asked, settingsNotGiven(asked, state.settings))}\``;
  const running = open.filter(({ status }) => status === 'running').map(({ id }) => id);
  const blocked = open.filter(({ status }) => status === 'blocked').map(({ id }) => id);
  return [
    ...(running.length === 0
      ? []
      : [
          `stopped in the middle: run ${running.join(', run ')}. ${up} goes on with ${running.length === 1 ? 'it' : 'them'}`,
        ]),
    ...blocked.map((id) => `blocked: run ${id}. After ${up}, \`npx trialgate resume ${id}\` goes on with it`),
  ];
}

async function readOpenRuns(config: Deployment): Promise<{ id: string; status: string }[]> {
  const db = openDatabase(connectionsOf(config).databaseUrl, { maxConnections: 1 });
  const open = db
    .select({ id: runs.id, status: runs.status })
    .from(runs)
    .where(inArray(runs.status, ['running', 'blocked']))
    .orderBy(asc(runs.createdAt));
  // A connection that hangs also hangs at its end, and the process does not wait for it.
  return open.finally(() => void db.$client.end().catch(() => {}));
}
