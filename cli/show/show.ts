import { desc, eq } from 'drizzle-orm';
import { networkNotice } from '../../activities/sandbox/network-notice.ts';
import { readRun } from '../../activities/run/read-run.ts';
import { namesRepair } from '../../core/block-advice.ts';
import type { Database } from '../../store/database.ts';
import { readEngineSpeeds } from '../../store/queries/read-engine-speeds.ts';
import { runs } from '../../store/schema.ts';
import type { RunStatus } from '../run/query-status.ts';
import { constrainedNotices, readConstrained } from './constrained-calls.ts';
import { printInfraErrors, readInfraErrors } from './infra-errors.ts';
import { slowEngineWarnings } from './slow-engines.ts';
import { readRunRecord, type RunRecord } from './run-record.ts';
import { runTable } from './run-table.ts';
import { table } from './table.ts';
import { readToolsNotShown, toolsNotShownNotices } from './tools-not-shown.ts';
import { readTrialRecord, transcript } from './trial-transcript.ts';
import { printUnderWay, readUnderWay } from './under-way.ts';

/**
 * Returns the text of `trialgate show`. `id` names a run if there is such a run, otherwise a trial. `isStopped`: the deployment is stopped,
 * so that runs that have not ended stand still.
 */
export async function show(
  db: Database,
  id: string | undefined,
  json: boolean,
  ask: (runId: string) => Promise<RunStatus | null>,
  isStopped = false,
): Promise<string> {
  const print = <T>(value: T, text: (value: T) => string): string =>
    json ? JSON.stringify(value, null, 2) : text(value);
  if (id === undefined) {
    const all = await db.select().from(runs).orderBy(desc(runs.createdAt));
    const rows = all.map((run) => ({
      run: run.id,
      status: run.status,
      reason: run.reason,
      created_at: run.createdAt.toISOString(),
    }));
    const standsStill = isStopped && rows.some(({ status }) => status === 'running');
    return print(rows, () =>
      rows.length
        ? [
            table(
              ['run', 'status', 'created'],
              rows.map((row) => [row.run, row.status, row.created_at]),
            ),
            ...(standsStill
              ? ['the deployment is stopped: `npx trialgate up` goes on with the runs that are running']
              : []),
          ].join('\n\n')
        : 'no runs yet: npx trialgate train FILE',
    );
  }
  const [run] = await db.select({ id: runs.id, status: runs.status }).from(runs).where(eq(runs.id, id));
  if (!run) return print(await readTrialRecord(db, id), transcript);
  const isUnderWay = run.status === 'running' || run.status === 'blocked';
  const underWay = isUnderWay ? await readUnderWay(db, id, isStopped ? async () => null : ask) : null;
  const { config, ...record } = await readRunRecord(db, id);
  const constrained = await readConstrained(db, id);
  const toolsNotShown = await readToolsNotShown(db, id);
  const notices = [
    await networkNotice(await readRun(db, id)),
    ...constrainedNotices(constrained),
    ...toolsNotShownNotices(toolsNotShown),
  ].filter((notice) => notice !== null);
  const infraErrors = await readInfraErrors(db, id);
  const engineSpeeds = isUnderWay && !isStopped ? await readEngineSpeeds(db, id) : [];
  notices.push(...slowEngineWarnings(engineSpeeds));
  return print(
    {
      ...record,
      deployment_stopped: isStopped,
      constrained_calls: constrained,
      tools_not_shown: toolsNotShown,
      engine_speeds: engineSpeeds,
      infra_errors: infraErrors,
      under_way: underWay,
      config,
    },
    () => {
      const title = `run ${record.run}: ${record.status}${record.reason ? ` (${record.reason})` : ''}${originOf(record)}`;
      return [
        title,
        ...(isStopped && isUnderWay ? [goesOn(id, record)] : []),
        ...notices.map((notice) => `WARNING: ${notice}`),
        ...(underWay ? printUnderWay(id, underWay) : []),
        runTable(record),
        ...printInfraErrors(infraErrors),
      ].join('\n\n');
    },
  );
}

/** Says how a run goes on whose deployment is stopped. */
function goesOn(runId: string, { status, reason }: Pick<RunRecord, 'status' | 'reason'>): string {
  const up = 'its deployment is stopped: `npx trialgate up`';
  if (status !== 'blocked') return `${up} goes on with it`;
  return namesRepair(reason)
    ? `${up}, then do what its reason says`
    : `${up}, then \`npx trialgate resume ${runId}\` goes on with it`;
}

function originOf({ forked_from, rescores }: Pick<RunRecord, 'forked_from' | 'rescores'>): string {
  if (forked_from === null) return '';
  return rescores === null
    ? `, forked from ${forked_from}`
    : `, ${rescores} again from ${forked_from}, under other reward weights`;
}
