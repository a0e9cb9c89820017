import { Hono } from 'hono';
import { z } from 'zod';
import { attemptKey } from '../../store/keys.ts';
import { completeTrial } from '../../store/queries/complete-trial.ts';
import { deleteTrial } from '../../store/queries/delete-trial.ts';
import { openAttempt } from '../../store/queries/open-attempt.ts';
import { readCalls } from '../../store/queries/read-calls.ts';
import { readTrainableCalls } from '../../store/queries/read-trainable-calls.ts';
import { findTrial } from '../../store/queries/find-trials.ts';
import { buildSamples, type TokenSample } from '../../store/samples/build-samples.ts';
import { requireAdmin } from '../auth.ts';
import type { GatewayDeps } from '../deps.ts';
import { Failure } from '../failure.ts';
import { badRequest, parseBody } from '../json.ts';
import { patiently } from '../patiently.ts';
import { readBody } from '../read-body.ts';
import { samplingChoices } from '../../store/sampling-choices.ts';
import { sessionRecord } from '../session-record.ts';

const id = z.string().regex(/^[A-Za-z0-9][A-Za-z0-9._/-]{0,255}$/, 'an id of letters, digits, `.`, `_`, `-`, `/`');
const TRIAL_ID = /^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$/;
const count = z.int().min(1);

const opening = z.strictObject({
  run_id: id.optional(),
  group_id: id.optional(),
  attempt: count.max(999_999_999).optional(),
  sampling: samplingChoices.optional(),
  budgets: z.strictObject({ calls: count, tokens: count, seconds: z.number().gt(0), prompt_tokens: count }).partial().optional(),
});

/** Opening, reading and closing a trial's session: verl-recipe's remote agent loop speaks this. */
export function sessionRoutes(deps: GatewayDeps): Hono {
  const app = new Hono();
  app.use('/sessions/*', async (c, next) => {
    requireAdmin(deps, c.req.raw.headers);
    await next();
  });

  app.post('/sessions/:trial', async (c) => {
    const trialId = c.req.param('trial');
    if (!TRIAL_ID.test(trialId)) throw badRequest(`trial id ${JSON.stringify(trialId)}: use letters, digits, \`.\`, \`_\` and \`-\`, at most 128`);
    const { run_id, group_id, ...rest } = parseOpening(await readBody(c.req.raw, deps.settings.maxBodyBytes));
    const opened = await patiently(deps, () => openAttempt(deps.db, { trialId, runId: run_id, groupId: group_id, ...rest }));
    return c.json({
      session_id: trialId,
      status: 'created',
      attempt: opened.attempt,
      api_key: attemptKey(deps.secret, trialId, opened.attempt),
      base_url: `${new URL(c.req.url).origin}/${trialId}/v1`,
    });
  });

  /** The trial, and the attempt that `?attempt=` names, else its current one. */
  const sessionOf = async (trialId: string, asked: string | undefined) => {
    const trial = await patiently(deps, () => findTrial(deps.db, trialId));
    if (!trial) throw new Failure(404, 'session_not_found', 'Session not found', { retryable: false });
    if (asked !== undefined && !/^[1-9]\d{0,8}$/.test(asked)) throw badRequest(`attempt: a number from 1, not ${JSON.stringify(asked)}`);
    return { trial, at: { trialId, attempt: asked === undefined ? trial.attempt : Number(asked) } };
  };

  app.get('/sessions/:trial', async (c) => {
    const { trial, at } = await sessionOf(c.req.param('trial'), c.req.query('attempt'));
    const calls = await patiently(deps, () => readCalls(deps.db, at));
    return c.json(sessionRecord(trial, at.attempt, calls));
  });

  app.get('/sessions/:trial/samples', async (c) => {
    const { at } = await sessionOf(c.req.param('trial'), c.req.query('attempt'));
    const samples = buildSamples(await patiently(deps, () => readTrainableCalls(deps.db, at)));
    return c.json({ samples: samples.map(asJson) });
  });

  app.post('/sessions/:trial/complete', async (c) => {
    const trialId = c.req.param('trial');
    await patiently(deps, () => completeTrial(deps.db, { trialId }));
    return c.json({ session_id: trialId, status: 'completed' });
  });

  app.delete('/sessions/:trial', async (c) => {
    const trialId = c.req.param('trial');
    await patiently(deps, () => deleteTrial(deps.db, { trialId }));
    return c.json({ session_id: trialId, status: 'deleted' });
  });
  return app;
}

const asJson = ({ tokenIds, lossMask, logprobs, policyVersions, callIds }: TokenSample) => ({
  token_ids: Array.from(tokenIds),
  loss_mask: Array.from(lossMask),
  logprobs: Array.from(logprobs),
  policy_versions: policyVersions,
  call_ids: callIds,
});

function parseOpening(bytes: Uint8Array): z.output<typeof opening> {
  if (bytes.byteLength === 0) return {};
  const checked = opening.safeParse(parseBody(bytes));
  if (checked.success) return checked.data;
  const [issue] = checked.error.issues;
  throw badRequest(`${issue?.path.join('.') || 'body'}: ${issue?.message ?? 'is not valid'}`);
}
