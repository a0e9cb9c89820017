import { eq, sql } from 'drizzle-orm';
import { Hono } from 'hono';
import { RUN_ID } from '../../../core/ids.ts';
import { attemptKey } from '../../../core/keys.ts';
import { claimGroup, type ClaimedGroup } from '../../../store/queries/claim-group.ts';
import { reportTrial } from '../../../store/queries/report-trial.ts';
import { runs, type RunStatus } from '../../../store/schema.ts';
import { claiming, reporting } from '../openapi/schemas.ts';
import { requireRunKey } from '../auth.ts';
import { check } from '../../check.ts';
import type { GatewayDeps } from '../deps.ts';
import { Failure } from '../../failure.ts';
import { parseBody } from '../../json.ts';
import { readBody } from '../bodies/read-body.ts';
import { withStoreRetry } from '../../with-store-retry.ts';

const MAX_BYTES = 65_536;

/** Groups of a run with `rollouts: external`: a program claims them, runs its agents, and reports a reward for each trial, with the run's key. */
export function externalRoutes(deps: GatewayDeps): Hono {
  const app = new Hono();
  const bodyOf = async (request: Request): Promise<unknown> =>
    parseBody((await readBody(request, { ...deps.settings, maxBodyBytes: MAX_BYTES })).bytes);

  app.post('/runs/:run/groups', async (c) => {
    const runId = keyedRun(deps, c.req.param('run'), c.req.raw.headers);
    const { task, claim } = check(claiming, await bodyOf(c.req.raw));
    const run = await withStoreRetry(deps, () => readRun(deps, runId));
    if (!run) throw new Failure(404, 'not_found', `there is no run ${runId}`, { retryable: false });
    if (run.rollouts !== 'external')
      throw new Failure(
        409,
        'not_external',
        `run ${runId} runs its agents itself: only a run with \`rollouts: external\` in its run file has groups to claim`,
        { retryable: false },
      );
    const group =
      run.status === 'running' ? await withStoreRetry(deps, () => claimGroup(deps.db, { runId, task, claim })) : null;
    return c.json({ run: run.status, reason: run.reason, group: group && claimed(group, new URL(c.req.url).origin) });
  });

  app.post('/runs/:run/trials/:trial/reward', async (c) => {
    const runId = keyedRun(deps, c.req.param('run'), c.req.raw.headers);
    const { attempt, reward, reason } = check(reporting, await bodyOf(c.req.raw));
    const rewards = typeof reward === 'number' ? { reward } : reward;
    const trialId = c.req.param('trial');
    const trial = await withStoreRetry(deps, () => reportTrial(deps.db, { runId, trialId, attempt, rewards, reason }));
    return c.json({ trial_id: trial.id, attempt, outcome: trial.outcome, rewards: trial.rewards });
  });

  const claimed = ({ groupId, task, trials }: ClaimedGroup, origin: string) => ({
    group_id: groupId,
    task,
    trials: trials.map(({ trialId, trialIndex, attempt }) => ({
      trial_id: trialId,
      trial_index: trialIndex,
      attempt,
      api_key: attemptKey(deps.secret, trialId, attempt),
      base_url: `${origin}/${encodeURIComponent(trialId)}/v1`,
    })),
  });
  return app;
}

/** Returns the run's id. A wrong key gets a 401 whether or not there is such a run. */
function keyedRun(deps: GatewayDeps, runId: string, headers: Headers): string {
  requireRunKey(deps, runId, headers);
  if (RUN_ID.test(runId)) return runId;
  throw new Failure(404, 'not_found', `there is no run ${JSON.stringify(runId)}`, { retryable: false });
}

type RunNow = { status: RunStatus; reason: string | null; rollouts: unknown };

async function readRun({ db }: GatewayDeps, runId: string): Promise<RunNow | undefined> {
  const rollouts = sql`${runs.config} ->> 'rollouts'`;
  const [run] = await db
    .select({ status: runs.status, reason: runs.reason, rollouts })
    .from(runs)
    .where(eq(runs.id, runId));
  return run;
}
