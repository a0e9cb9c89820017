import { epochSeconds } from '../../../core/epoch-seconds.ts';
import { Hono } from 'hono';
import type { Database } from '../../../store/database.ts';
import { stringifyExact } from '../../../core/exact-json.ts';
import { isTrialId } from '../../../core/ids.ts';
import { weightedReward } from '../../../core/weighted-reward.ts';
import { readTrial } from '../../../store/queries/find-trials.ts';
import { readOutputs } from '../../../store/queries/outputs.ts';
import { readCallRequest } from '../../../store/queries/read-call.ts';
import { TooMuchToRead } from '../../../store/queries/read-limit.ts';
import { readRunHead } from '../../../store/queries/read-run-head.ts';
import { buildSamples } from '../../../store/samples/build-samples.ts';
import { countIds } from '../../../store/queries/count-ids.ts';
import { readTrainableCalls } from '../../../store/queries/read-trainable-calls.ts';
import { readAttempts, readTurns, type ShownCall } from '../../../store/queries/read-turns.ts';
import { readRefusals } from '../../../store/queries/refusals.ts';
import { explainUntrainable } from '../../calls/sampling/explain-untrainable.ts';
import { explainToolsNotShown } from '../../calls/sampling/tools-not-shown.ts';
import { check } from '../../check.ts';
import { Failure } from '../../failure.ts';
import { jsonReply } from '../../reply-formats.ts';
import type { GatewayDeps, GatewayEnv } from '../deps.ts';
import { attemptQuery } from '../openapi/schemas.ts';
import { callPath, transcriptQuery, type CallRequest, type Transcript } from '../openapi/run-schemas.ts';
import { readForPage } from '../read-for-page.ts';
import { sessionNotFound } from './session-not-found.ts';
import { sampleRecord } from './session-record.ts';

/** The most ids that the calls of an attempt may have for a browser to be sent its sequences: 4 bytes each here, and more in the reply. */
const MOST_IDS = 8_000_000;

/** Reads what an attempt's agent saw, with each message once, and the token sequences that are trained of it. */
export function transcriptRoutes(deps: GatewayDeps): Hono<GatewayEnv> {
  const app = new Hono<GatewayEnv>();
  const { reader } = deps;
  const trialOf = async (trialId: string) => {
    const trial = isTrialId(trialId) ? await readForPage(deps, () => readTrial(reader, trialId)) : undefined;
    if (!trial) throw sessionNotFound();
    return trial;
  };

  app.get('/sessions/:trial/transcript', async (c) => {
    const trialId = c.req.param('trial');
    const query = check(transcriptQuery, c.req.query());
    const { after = 0, limit = 200 } = query;
    const trial = await trialOf(trialId);
    const { runId } = trial;
    const attempt = query.attempt ?? trial.attempt;
    const run = runId === null ? null : await readForPage(deps, () => readRunHead(reader, runId));
    const { turns, next } = await readForPage(deps, () => readTurns(reader, { trialId, attempt }, { after, limit }));
    // These parts are the same for every page, so only the first page has them.
    const about = after === 0 ? await readForPage(deps, () => readAbout(reader, { trialId, attempt })) : null;
    const reply: Transcript = {
      session_id: trial.id,
      run_id: runId,
      run_status: run?.status ?? null,
      group_id: trial.groupId,
      task: trial.task,
      agent: trial.agent,
      attempt,
      current_attempt: trial.attempt,
      outcome: trial.outcome,
      rewards: trial.rewards,
      reward: trial.rewards && weightedReward(trial.rewards, run?.weights ?? {}),
      reason: trial.reason,
      attempts: about?.attempts ?? null,
      outputs: about?.outputs ?? null,
      refusals: about?.refusals ?? null,
      calls: turns.map(shown),
      next,
    };
    return jsonReply(reply, {});
  });

  app.get('/sessions/:trial/calls/:call/request', async (c) => {
    const { call: id } = check(callPath, { call: c.req.param('call') });
    const trial = await trialOf(c.req.param('trial'));
    const { maxBodyBytes: maxBytes } = deps.settings;
    const found = await readForPage(deps, () => readCallRequest(reader, { trialId: trial.id, id }, maxBytes)).catch(
      (error: unknown) => {
        throw error instanceof TooMuchToRead ? tooLarge(maxBytes) : error;
      },
    );
    if (!found) throw new Failure(404, 'not_found', `session ${trial.id} has no call ${id}`, { retryable: false });
    const { attempt, protocol, request } = found;
    if (Object.keys(request).length === 0)
      throw new Failure(404, 'not_found', 'the request was refused, and the bodies of such requests are not kept', {
        retryable: false,
      });
    const reply: CallRequest = {
      session_id: trial.id,
      call_id: id,
      attempt,
      path: protocol === 'completions' ? '/completions' : '/chat/completions',
      body: stringifyExact(request),
    };
    return c.json(reply);
  });

  app.get('/sessions/:trial/tokens', async (c) => {
    const { attempt: asked } = check(attemptQuery, c.req.query());
    const trial = await trialOf(c.req.param('trial'));
    const at = { trialId: trial.id, attempt: asked === undefined ? trial.attempt : Number(asked) };
    const ids = await readForPage(deps, () => countIds(reader, at));
    if (ids > MOST_IDS)
      throw new Failure(
        413,
        'too_many_tokens',
        `the calls of this attempt have ${ids.toLocaleString('en')} tokens with their prompts, more than are sent to a browser: read them with GET /sessions/{trial_id}/samples`,
        { retryable: false },
      );
    const samples = buildSamples(await readForPage(deps, () => readTrainableCalls(reader, at)));
    return c.json({ samples: samples.map(sampleRecord) });
  });
  return app;
}

const tooLarge = (most: number) =>
  new Failure(
    413,
    'request_too_large',
    `the calls that this request builds on are larger than ${most} bytes (setting max_body_bytes): read them with GET /sessions/{trial_id}`,
    { retryable: false },
  );

/** Reads what belongs to the trial and not to single calls. */
async function readAbout(db: Database, { trialId, attempt }: { trialId: string; attempt: number }) {
  const tried = await readAttempts(db, trialId);
  const outputs = await readOutputs(db, trialId, attempt);
  const refusals = await readRefusals(db, trialId);
  return {
    attempts: tried.map((row) => ({
      attempt: row.attempt,
      outcome: row.outcome,
      reason: row.reason,
      evidence: row.evidence,
      host: row.host,
      seconds: row.seconds,
    })),
    outputs: outputs.map(({ program, stdout, stderr }) => ({ program, stdout, stderr })),
    refusals: {
      count: refusals?.count ?? 0,
      latest: (refusals?.latest ?? []).map(({ at, status, code, message }) => ({ at, status, code, message })),
    },
  };
}

const shown = (call: ShownCall) => ({
  call_id: call.id,
  number: call.number,
  continues: call.continues,
  shares: call.shares,
  messages: call.messages,
  shares_tools: call.sharesTools,
  tools: call.tools,
  tools_not_shown: explainToolsNotShown(call),
  reply: call.reply,
  status: call.status,
  http_status: call.httpStatus,
  reason: call.reason,
  untrainable: call.untrainable,
  why_untrainable: explainUntrainable(call),
  continuation: call.continuation,
  finish_reason: call.finishReason,
  policy_version: call.policyVersion,
  protocol: call.protocol,
  prompt_tokens: call.promptTokens,
  completion_tokens: call.completionTokens,
  started_at: epochSeconds(call.startedAt),
  first_token_at: call.firstTokenAt && epochSeconds(call.firstTokenAt),
  ended_at: epochSeconds(call.endedAt),
});
