import { Hono } from 'hono';
import { reportReward } from '../../../store/queries/report-reward.ts';
import { reported } from '../openapi/schemas.ts';
import { holdsAdminKey, openTrialOf } from '../auth.ts';
import { check } from '../../check.ts';
import type { GatewayDeps } from '../deps.ts';
import { parseBody } from '../../json.ts';
import { withStoreRetry } from '../../with-store-retry.ts';
import { readBody } from '../bodies/read-body.ts';

/** The body holds a single number. */
const MAX_BYTES = 4096;

/**
 * Takes rewards that agents outside any run report. The trial's own key is enough while its attempt is open, so that an agent that scores
 * itself does not need the admin key.
 */
export function rewardRoutes(deps: GatewayDeps): Hono {
  const app = new Hono();
  app.post('/sessions/:trial/reward', async (c) => {
    const { headers } = c.req.raw;
    const trialId = c.req.param('trial');
    const attempt = holdsAdminKey(deps, headers)
      ? undefined
      : (await openTrialOf(deps, trialId, headers, { keyed: true })).attempt;
    const { bytes } = await readBody(c.req.raw, { ...deps.settings, maxBodyBytes: MAX_BYTES });
    const { reward } = check(reported, parseBody(bytes));
    const trial = await withStoreRetry(deps, () => reportReward(deps.db, { trialId, attempt, reward }));
    return c.json({ session_id: trial.id, attempt: trial.attempt, reported_reward: reward });
  });
  return app;
}
