import { epochSeconds } from '../../core/epoch-seconds.ts';
import { Hono } from 'hono';
import { RUN_ID } from '../../core/ids.ts';
import { countDropped } from '../../store/queries/count-dropped.ts';
import { listGroups, type ListedGroup } from '../../store/queries/list-groups.ts';
import { listRuns } from '../../store/queries/list-runs.ts';
import { readEvaluations } from '../../store/queries/read-evaluations.ts';
import { readIterations, type TakeRow } from '../../store/queries/read-iterations.ts';
import { readRunHead, type RunHead } from '../../store/queries/read-run-head.ts';
import { readTimelineGroups, readTimelineTake } from '../../store/queries/read-timeline.ts';
import { searchTranscripts } from '../../store/queries/search-transcripts.ts';
import type { TrialChoice } from '../../store/queries/trial-choice.ts';
import type { Outcome } from '../../store/schema.ts';
import { check } from '../check.ts';
import { Failure } from '../failure.ts';
import { holdsAdminKey, requireReader } from './auth.ts';
import type { GatewayDeps, GatewayEnv } from './deps.ts';
import {
  groupsQuery,
  iterationPath,
  iterationsQuery,
  runsQuery,
  searchQuery,
  timelineQuery,
} from './openapi/run-schemas.ts';
import type {
  DroppedWork,
  GroupList,
  IterationList,
  RunDetails,
  RunList,
  SearchResult,
  Take,
  Timeline,
} from './openapi/run-schemas.ts';
import { hideCredentials } from './hide-credentials.ts';
import { EVENT_STREAM } from '../reply-formats.ts';
import { readForPage } from './read-for-page.ts';
import { streamOf } from './stream-of.ts';
import { termsOf } from './search-terms.ts';
import { timelineOf } from './timeline-reply.ts';

const ENDED: ReadonlySet<string> = new Set(['completed', 'failed', 'cancelled']);
/** The most takes that are read of one iteration. People open far fewer. */
const MOST_TAKES = 10_000;

/** Reads runs, their iterations and their groups from the record, for the page and for programs. */
export function runRoutes(deps: GatewayDeps): Hono<GatewayEnv> {
  const app = new Hono<GatewayEnv>();
  const { reader } = deps;

  app.get('/runs', async (c) => {
    requireReader(deps, c.req.raw);
    const { cursor, limit = 50 } = check(runsQuery, c.req.query());
    const found = await readForPage(deps, () => listRuns(reader, { after: cursor, limit: limit + 1 }));
    const runs = found.slice(0, limit).map((run) => ({ ...head(run), iteration: run.iteration, rewards: run.rewards }));
    const reply: RunList = {
      runs,
      next_cursor: found.length > limit ? (runs.at(-1)?.run_id ?? null) : null,
      is_operable: deps.startRun !== undefined && holdsAdminKey(deps, c.req.raw.headers),
    };
    return c.json(reply);
  });

  const runOf = async (request: Request, runId: string): Promise<RunHead> => {
    requireReader(deps, request);
    const run = RUN_ID.test(runId) ? await readForPage(deps, () => readRunHead(reader, runId)) : null;
    if (run) return run;
    throw new Failure(404, 'not_found', `there is no run ${JSON.stringify(runId)}`, { retryable: false });
  };

  app.get('/runs/:run', async (c) => {
    const run = await runOf(c.req.raw, c.req.param('run'));
    const evaluations = await readForPage(deps, () => readEvaluations(reader, run.id, run.weights));
    const isAdmin = holdsAdminKey(deps, c.req.raw.headers);
    const reply: RunDetails = {
      ...head(run),
      config: isAdmin ? run.config : hideCredentials(run.config),
      paused_until: pauseEnd(run),
      is_operable: isAdmin && deps.operateRun !== undefined,
      evaluations: evaluations.map(({ id, policyVersion, trials, scored, rewardMean, passAt }) => ({
        id,
        policy_version: policyVersion,
        trials,
        scored,
        reward_mean: rewardMean,
        pass_at: passAt,
      })),
      quarantined: run.quarantined.map(({ task, reason, at }) => ({ task, reason, at: epochSeconds(at) })),
    };
    return c.json(reply);
  });

  app.get('/runs/:run/events', async (c) => {
    const { id } = await runOf(c.req.raw, c.req.param('run'));
    if (!deps.runEvents)
      throw new Failure(501, 'no_events', 'this gateway sends no events: ask for the run itself', { retryable: false });
    // Nobody would read the body of its reply, and so nobody end it.
    if (c.req.method === 'HEAD') return new Response(null, { headers: EVENT_STREAM });
    const events = deps.runEvents.follow(id, c.req.header('last-event-id') ?? null);
    return new Response(streamOf(events), { headers: EVENT_STREAM });
  });

  app.get('/runs/:run/iterations', async (c) => {
    const { id, weights, status } = await runOf(c.req.raw, c.req.param('run'));
    const { from = 0, limit = 200 } = check(iterationsQuery, c.req.query());
    const wanted = { from, limit: limit + 1, weights, hasEnded: ENDED.has(status) };
    const found = await readForPage(deps, () => readIterations(reader, id, wanted));
    const { shown, next, only } = wholeIterations(found, limit);
    if (only !== null) {
      // One iteration has more takes than a page: they are read all.
      const all = { ...wanted, from: only, to: only, limit: MOST_TAKES };
      shown.push(...(await readForPage(deps, () => readIterations(reader, id, all))));
    }
    const reply: IterationList = { iterations: shown.map(takeOf), next_from: next };
    return c.json(reply);
  });

  app.get('/runs/:run/iterations/:iteration/timeline', async (c) => {
    const run = await runOf(c.req.raw, c.req.param('run'));
    const { iteration } = check(iterationPath, { iteration: c.req.param('iteration') });
    const query = check(timelineQuery, c.req.query());
    const { take: asked, offset = 0, limit = 200 } = query;
    const wanted = { runId: run.id, iteration, take: asked, isCounted: offset === 0 };
    const take = await readForPage(deps, () => readTimelineTake(reader, wanted));
    if (!take) {
      const what = asked === undefined ? `iteration ${iteration}` : `take ${asked} of iteration ${iteration}`;
      throw new Failure(404, 'not_found', `run ${run.id} has no ${what}`, { retryable: false });
    }
    const page = {
      offset,
      limit,
      weights: run.weights,
      hasEnded: ENDED.has(run.status),
      trials: choiceOf(query),
    };
    const found = await readForPage(deps, () => readTimelineGroups(reader, take, page));
    const reply: Timeline = timelineOf(run, take, found);
    return c.json(reply);
  });

  app.get('/runs/:run/groups', async (c) => {
    const { id, weights, status } = await runOf(c.req.raw, c.req.param('run'));
    const query = check(groupsQuery, c.req.query());
    const { iteration, take, group_id: group, evaluation, dropped, offset = 0, limit = 100 } = query;
    const wanted = { iteration, take, group, evaluation, dropped, trials: choiceOf(query) };
    const page = { offset, limit: limit + 1, weights, hasEnded: ENDED.has(status) };
    const found = await readForPage(deps, () => listGroups(reader, id, wanted, page));
    const reply: GroupList = {
      run_status: status,
      groups: found.slice(0, limit).map(groupOf),
      next_offset: found.length > limit ? offset + limit : null,
    };
    return c.json(reply);
  });

  app.get('/runs/:run/dropped', async (c) => {
    const { id } = await runOf(c.req.raw, c.req.param('run'));
    const { callsSince, ...dropped } = await readForPage(deps, () => countDropped(reader, id));
    const reply: DroppedWork = { ...dropped, calls_since: callsSince };
    return c.json(reply);
  });

  app.get('/runs/:run/search', async (c) => {
    const { id, status } = await runOf(c.req.raw, c.req.param('run'));
    const { q, after } = check(searchQuery, c.req.query());
    const found = await readForPage(deps, () => searchTranscripts(reader, id, { terms: termsOf(q), after }));
    if (!found) {
      const message = `run ${id} has no call ${after}, after which to search on: its session was deleted, or it is of another run. Begin the search again`;
      throw new Failure(404, 'not_found', message, { retryable: false });
    }
    const reply: SearchResult = {
      run_status: status,
      hits: found.hits.map(({ trialId, attempt, callId, number, role, excerpt }) => ({
        trial_id: trialId,
        attempt,
        call_id: callId,
        number,
        role,
        excerpt: excerpt.map(({ text, isMatch }) => ({ text, is_match: isMatch })),
      })),
      searched: found.searched,
      next_after: found.next,
    };
    return c.json(reply);
  });
  return app;
}

type Query = { outcome?: Outcome | 'open'; agent?: string; reward_min?: number; reward_max?: number };
const choiceOf = ({ outcome, agent, reward_min: rewardMin, reward_max: rewardMax }: Query): TrialChoice => ({
  outcome,
  agent,
  rewardMin,
  rewardMax,
});

/** Leaves out the last iteration of a page that may lack takes. `only` is the iteration that fills the page alone. */
function wholeIterations(found: readonly TakeRow[], limit: number) {
  if (found.length <= limit) return { shown: [...found], next: null, only: null };
  const last = found.at(-1)?.iteration ?? 0;
  const before = found.filter(({ iteration }) => iteration < last);
  return before.length > 0 ? { shown: before, next: last, only: null } : { shown: before, next: last + 1, only: last };
}

/** A run that has ended, or is blocked, does nothing that a pause could hold. */
const pauseEnd = ({ status, pausedUntil: until }: RunHead): number | null =>
  status === 'running' && until !== null && until.getTime() > Date.now() ? epochSeconds(until) : null;

const head = (
  run: Omit<RunHead, 'config' | 'nextVersion' | 'resumedAt' | 'pausedUntil' | 'weights' | 'quarantined'>,
) => ({
  run_id: run.id,
  status: run.status,
  reason: run.reason,
  created_at: epochSeconds(run.createdAt),
  ended_at: run.endedAt && epochSeconds(run.endedAt),
  forked_from: run.forkedFrom,
  rescores: run.rescores,
});

const takeOf = (row: TakeRow): Take => ({
  iteration: row.iteration,
  take: row.take,
  status: row.status,
  policy_version: row.policyVersion,
  trained_version: row.trainedVersion,
  skipped: row.skipped,
  opened_at: epochSeconds(row.openedAt),
  ended_at: row.endedAt && epochSeconds(row.endedAt),
  seconds: row.seconds,
  metrics: row.metrics,
  batch_metrics: row.batchMetrics,
  groups: row.groups,
  dropped_groups: row.dropped,
  equal_groups: row.equal,
  unrewarded_groups: row.unrewarded,
  trials: row.trials,
  reward: row.reward,
});

const groupOf = (row: ListedGroup) => ({
  group_id: row.id,
  kind: row.kind,
  iteration: row.iteration,
  take: row.take,
  superseded: row.superseded,
  task: row.task,
  agent: row.trials.find(({ agent }) => agent !== null)?.agent ?? row.agent,
  size: row.size,
  policy_version: row.policyVersion,
  dropped: row.dropped,
  opened_at: epochSeconds(row.openedAt),
  ended_at: row.endedAt && epochSeconds(row.endedAt),
  variance: row.variance,
  mean: row.mean,
  trials: row.trials.map((trial) => ({
    trial_id: trial.id,
    trial_index: trial.trialIndex,
    agent: trial.agent,
    attempt: trial.attempt,
    outcome: trial.outcome,
    reward: trial.reward,
    rewards: trial.rewards,
    reason: trial.reason,
    calls: trial.usedCalls,
    tokens: trial.usedTokens,
    seconds: trial.seconds,
  })),
});
