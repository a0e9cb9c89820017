import { execFile } from 'node:child_process';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import { and, eq, inArray } from 'drizzle-orm';
import { connectionsOf } from '../../../cli/config/connections.ts';
import { INSTALLS } from '../../../cli/folders.ts';
import { withDeployment } from '../../../cli/run/connect.ts';
import { readRunRecord, type RunRecord } from '../../../cli/show/run-record.ts';
import type { Database } from '../../../store/database.ts';
import { calls, groups, trials } from '../../../store/schema.ts';
import type { RunStatusReport } from '../../../workflows/messages.ts';
import type { TestDeployment } from './deployment.ts';

const PATIENCE_MS = 750_000;
const NEVER = new AbortController().signal;

/** Runs `temporal workflow …`, Temporal's own CLI, on the deployment's Temporal, and returns its output. */
export async function temporalWorkflow({ config, env }: TestDeployment, ...args: string[]): Promise<string> {
  const address = ['--address', connectionsOf(config).temporalAddress];
  const { stdout } = await promisify(execFile)(INSTALLS.temporal, ['workflow', ...args, ...address], { env });
  return stdout;
}

/** Returns the run's answer to the query `status`, or null where nothing answers now. */
export const statusOf = ({ config }: TestDeployment, run: string): Promise<RunStatusReport | null> =>
  withDeployment(config, ({ client }) => client.workflow.getHandle(run).query<RunStatusReport>('status')).catch(
    () => null,
  );

/** Returns the run's record as soon as `done` accepts it. */
export async function recordWhen(
  db: Database,
  run: string,
  done: (record: RunRecord) => boolean,
  signal = NEVER,
): Promise<RunRecord> {
  for (const end = Date.now() + PATIENCE_MS; Date.now() < end; await sleep(300, null, { signal })) {
    const record = await readRunRecord(db, run).catch(() => null);
    if (record && done(record)) return record;
  }
  throw new Error(`run ${run}: ${JSON.stringify(await readRunRecord(db, run).catch(String)).slice(0, 2000)}`);
}

/**
 * Waits for the first reply to an agent of a run, or of one iteration. Where agents start one after the other, most of them start later, so
 * pausing the engine now keeps them waiting for their reply.
 */
export async function firstReplyOf(db: Database, run: string, iteration?: number, signal = NEVER): Promise<void> {
  const ofRun = and(eq(trials.runId, run), iteration === undefined ? undefined : eq(groups.iteration, iteration));
  const theirs = db
    .select({ id: trials.id })
    .from(trials)
    .innerJoin(groups, eq(groups.id, trials.groupId))
    .where(ofRun);
  for (const end = Date.now() + PATIENCE_MS; Date.now() < end; await sleep(50, null, { signal }))
    if ((await db.$count(calls, and(eq(calls.status, 'completed'), inArray(calls.trialId, theirs)))) > 0) return;
  throw new Error(`no agent of run ${run} had a reply`);
}
