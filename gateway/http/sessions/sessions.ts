import { Hono, type Context } from 'hono';
import { attemptKey } from '../../../core/keys.ts';
import { completeTrial } from '../../../store/queries/complete-trial.ts';
import { deleteTrials } from '../../../store/queries/delete-trials.ts';
import { readTrial } from '../../../store/queries/find-trials.ts';
import { openAttempt } from '../../../store/queries/open-attempt.ts';
import { readBlob } from '../../../store/queries/read-blob.ts';
import { readCalls, type StoredCall } from '../../../store/queries/read-calls.ts';
import { readTrainableCalls } from '../../../store/queries/read-trainable-calls.ts';
import { readRefusals } from '../../../store/queries/refusals.ts';
import { buildSamples } from '../../../store/samples/build-samples.ts';
import { isTrialId } from '../../../core/ids.ts';
import { attemptQuery, deletion, opening, recordQuery } from '../openapi/schemas.ts';
import { check } from '../../check.ts';
import { isByUrl, isTaken } from './verl.ts';
import type { GatewayDeps, GatewayEnv } from '../deps.ts';
import { isHeavy } from '../bodies/heavy.ts';
import { Failure } from '../../failure.ts';
import { badRequest, parseBody } from '../../json.ts';
import { jsonReply } from '../../reply-formats.ts';
import { withStoreRetry } from '../../with-store-retry.ts';
import { readBody } from '../bodies/read-body.ts';
import { sessionNotFound } from './session-not-found.ts';
import { sampleRecord, sessionRecord } from './session-record.ts';

/** Opens, reads and closes a trial's session, in the form of verl-recipe's remote agent loop. */
export function sessionRoutes(deps: GatewayDeps): Hono<GatewayEnv> {
  const app = new Hono<GatewayEnv>();
  const open = async (c: Context<GatewayEnv>, trialId: string) => {
    if (!isTrialId(trialId))
      throw badRequest(
        `trial id ${JSON.stringify(trialId)}: use letters, digits, \`.\`, \`_\`, \`:\`, \`@\`, \`/\` and \`-\`, at most 255`,
      );
    if (isTaken(trialId)) throw badRequest(`trial id ${trialId}: this name is a route's`);
    if (c.env?.handOver && isHeavy(c.req.raw)) return c.env.handOver(null);
    const { bytes } = await readBody(c.req.raw, deps.settings);
    const { run_id, group_id, ...rest } = bytes.byteLength === 0 ? {} : check(opening, parseBody(bytes));
    const opened = await withStoreRetry(deps, () =>
      openAttempt(deps.db, { trialId, runId: run_id, groupId: group_id, ...rest }, { byUrl: isByUrl(deps, c.req.raw) }),
    );
    return c.json({
      session_id: trialId,
      status: 'created',
      attempt: opened.attempt,
      api_key: attemptKey(deps.secret, trialId, opened.attempt),
      base_url: `${new URL(c.req.url).origin}/${encodeURIComponent(trialId)}/v1`,
    });
  };
  app.post('/sessions', (c) => open(c, crypto.randomUUID()));

  app.post('/sessions/batch_delete', async (c) => {
    const { session_ids } = check(deletion, parseBody((await readBody(c.req.raw, deps.settings)).bytes));
    await withStoreRetry(deps, () => deleteTrials(deps.db, session_ids));
    return c.json({ session_ids, status: 'deleted' });
  });

  app.post('/sessions/:trial', (c) => open(c, c.req.param('trial')));

  /** Returns the trial and the attempt of `?attempt=`, or its current one. */
  const sessionOf = async (trialId: string, query: Record<string, string | undefined>) => {
    const { attempt: asked } = check(attemptQuery, query);
    const trial = isTrialId(trialId) && (await withStoreRetry(deps, () => readTrial(deps.db, trialId)));
    if (!trial) throw sessionNotFound();
    return { trial, at: { trialId, attempt: asked === undefined ? trial.attempt : Number(asked) } };
  };

  app.get('/sessions/:trial', async (c) => {
    const { after, since, limit, ...attempt } = check(recordQuery, c.req.query());
    const { trial, at } = await sessionOf(c.req.param('trial'), attempt);
    const all = await withStoreRetry(deps, () => readCalls(deps.db, at));
    const later = all.filter(
      ({ seq, endedAt }) =>
        seq > Number(after ?? 0) && (since === undefined || endedAt.getTime() / 1000 > Number(since)),
    );
    const calls = limit === undefined ? later : firstCalls(later, Number(limit));
    const refused = await withStoreRetry(deps, () => readRefusals(deps.db, trial.id));
    return jsonReply(sessionRecord(trial, at.attempt, calls, refused, Number(after ?? 0)), {});
  });

  app.get('/sessions/:trial/samples', async (c) => {
    const { at } = await sessionOf(c.req.param('trial'), c.req.query());
    const samples = buildSamples(await withStoreRetry(deps, () => readTrainableCalls(deps.db, at)));
    return c.json({ samples: samples.map(sampleRecord) });
  });

  app.get('/sessions/:trial/blobs/:sha256', async (c) => {
    const { trial } = await sessionOf(c.req.param('trial'), {});
    const { sha256 } = c.req.param();
    const bytes = await withStoreRetry(deps, () => readBlob(deps.db, trial.id, sha256));
    if (!bytes)
      throw new Failure(404, 'blob_not_found', `this session has no bytes with the SHA-256 ${sha256}`, {
        retryable: false,
      });
    return c.body(new Uint8Array(bytes), 200, { 'content-type': 'application/octet-stream' });
  });

  app.post('/sessions/:trial/complete', async (c) => {
    const trialId = knownId(c.req.param('trial'));
    await withStoreRetry(deps, () => completeTrial(deps.db, { trialId, orUnknown: isByUrl(deps, c.req.raw) }));
    return c.json({ session_id: trialId, status: 'completed' });
  });

  app.delete('/sessions/:trial', async (c) => {
    const trialId = knownId(c.req.param('trial'));
    await withStoreRetry(deps, () => deleteTrials(deps.db, [trialId]));
    return c.json({ session_id: trialId, status: 'deleted' });
  });
  return app;
}

/** Returns the first calls, each with all its choices. */
function firstCalls(calls: readonly StoredCall[], limit: number): StoredCall[] {
  let count = 0;
  return calls.filter(({ choiceOf }) => (count += choiceOf === null ? 1 : 0) <= limit);
}

function knownId(trialId: string): string {
  if (!isTrialId(trialId)) throw sessionNotFound();
  return trialId;
}
