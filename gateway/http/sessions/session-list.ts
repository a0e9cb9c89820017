import { Hono } from 'hono';
import type { z } from 'zod';
import { listTrials, type TrialFilter } from '../../../store/queries/list-trials.ts';
import { readCalls } from '../../../store/queries/read-calls.ts';
import { readRefusals } from '../../../store/queries/refusals.ts';
import { readTrainableCalls } from '../../../store/queries/read-trainable-calls.ts';
import type { TrialRow } from '../../../store/queries/transaction.ts';
import { buildSamples } from '../../../store/samples/build-samples.ts';
import { exporting, listing, type filter } from '../openapi/schemas.ts';
import { check } from '../../check.ts';
import type { GatewayDeps, GatewayEnv } from '../deps.ts';
import { jsonLines } from '../../reply-formats.ts';
import { withStoreRetry } from '../../with-store-retry.ts';
import { sampleLine, sessionRecord, sessionSummary } from './session-record.ts';

const EXPORT_PAGE = 50;

/** Lists sessions by run, group, outcome and status: page by page, or all of them with their calls, one a line. */
export function sessionListRoutes(deps: GatewayDeps): Hono<GatewayEnv> {
  const app = new Hono<GatewayEnv>();

  app.get('/sessions', async (c) => {
    const { limit = 50, cursor, ...rest } = check(listing, c.req.query());
    const found = await withStoreRetry(deps, () =>
      listTrials(deps.db, filterOf(rest), { after: cursor, limit: limit + 1 }),
    );
    const sessions = found.slice(0, limit).map(sessionSummary);
    return c.json({ sessions, next_cursor: found.length > limit ? (sessions.at(-1)?.session_id ?? null) : null });
  });

  app.get('/sessions/export', async (c) => {
    const { samples, cursor, ...rest } = check(exporting, c.req.query());
    const lineOf = samples === 'true' ? samplesOf : recordOf;
    return jsonLines(lines(filterOf(rest), cursor, lineOf), { cut: c.env?.cut, log: deps.log });
  });

  /** Yields one session at a time, so that only one is in memory and no query stays open while the reader is slow. */
  async function* lines(
    wanted: TrialFilter,
    cursor: string | undefined,
    lineOf: (trial: TrialRow) => Promise<unknown>,
  ) {
    for (let after = cursor; ;) {
      const at = { after, limit: EXPORT_PAGE };
      const trials = await withStoreRetry(deps, () => listTrials(deps.db, wanted, at));
      for (const trial of trials) yield await lineOf(trial);
      if (trials.length < EXPORT_PAGE) return;
      after = trials.at(-1)?.id;
    }
  }

  const at = ({ id, attempt }: TrialRow) => ({ trialId: id, attempt });
  const recordOf = async (trial: TrialRow) =>
    sessionRecord(
      trial,
      trial.attempt,
      await withStoreRetry(deps, () => readCalls(deps.db, at(trial))),
      await withStoreRetry(deps, () => readRefusals(deps.db, trial.id)),
    );
  const samplesOf = async (trial: TrialRow) =>
    sampleLine(trial, buildSamples(await withStoreRetry(deps, () => readTrainableCalls(deps.db, at(trial)))));
  return app;
}

const filterOf = ({ run_id, group_id, outcome, status }: z.output<typeof filter>): TrialFilter => ({
  runId: run_id,
  groupId: group_id,
  outcome,
  status,
});
