import type { z } from 'zod';
import type { SchemaName } from './document.ts';
import { groupsQuery, iterationsQuery, runsQuery, searchQuery, timelineQuery, transcriptQuery } from './run-schemas.ts';
import { attemptQuery, exporting, listing, recordQuery } from './schemas.ts';

export type Operation = {
  /** The name of the method in generated clients. */
  id: string;
  method: 'get' | 'post' | 'delete';
  path: string;
  summary: string;
  /** Any one of these keys opens the route. An empty list leaves it open. */
  keys: ('admin' | 'run' | 'trial')[];
  query?: z.ZodObject;
  body?: { schema: SchemaName; required: boolean };
  reply: SchemaName | { type: string };
  /** True when the reply is a stream with one such value a line. */
  lines?: true;
  failures: Record<number, string>;
};

const BAD = { 400: 'A field or the body is invalid; the message names it' };
const KEY = { 401: 'The key is wrong' };
const UNKNOWN = { 404: 'No such session' };
const STORE = { 503: 'PostgreSQL cannot be reached: try again' };
const NO_RUN = { 404: 'No such run' };
const SLOW = { 503: 'PostgreSQL cannot be reached, or takes too long, or others read at this moment: try again' };
const SESSION = '/sessions/{trial_id}';
const RUN = '/runs/{run_id}';
const admin: Pick<Operation, 'keys'> = { keys: ['admin'] };

export const OPERATIONS: readonly Operation[] = [
  {
    ...admin,
    id: 'open',
    method: 'post',
    path: SESSION,
    summary:
      'Open a session or its next attempt, which closes the attempt before; opening the same attempt again changes nothing',
    body: { schema: 'Opening', required: false },
    reply: 'Opened',
    failures: { ...BAD, ...KEY, 409: 'The attempt is closed', 413: 'The body is too large', ...STORE },
  },
  {
    ...admin,
    id: 'create',
    method: 'post',
    path: '/sessions',
    summary: 'Open a session under a new id that the gateway chooses',
    body: { schema: 'Opening', required: false },
    reply: 'Opened',
    failures: { ...BAD, ...KEY, 413: 'The body is too large', ...STORE },
  },
  {
    ...admin,
    id: 'get',
    method: 'get',
    path: SESSION,
    summary: 'Read all calls of an attempt in full',
    query: recordQuery,
    reply: 'Session',
    failures: { ...BAD, ...KEY, ...UNKNOWN, ...STORE },
  },
  {
    ...admin,
    id: 'samples',
    method: 'get',
    path: `${SESSION}/samples`,
    summary: 'Read an attempt’s trainable sequences; each turn is trained in one of them only',
    query: attemptQuery,
    reply: 'Samples',
    failures: { ...BAD, ...KEY, ...UNKNOWN, ...STORE },
  },
  {
    ...admin,
    id: 'blob',
    method: 'get',
    path: `${SESSION}/blobs/{sha256}`,
    summary: 'Read bytes that a turn names by their SHA-256, such as its `routed_experts`',
    reply: { type: 'application/octet-stream' },
    failures: { ...KEY, 404: 'No such session, or it has no such bytes', ...STORE },
  },
  {
    ...admin,
    id: 'complete',
    method: 'post',
    path: `${SESSION}/complete`,
    summary: 'Complete a session, which then accepts no more calls',
    reply: 'Completed',
    failures: { ...KEY, ...UNKNOWN, ...STORE },
  },
  {
    id: 'reward',
    method: 'post',
    path: `${SESSION}/reward`,
    summary:
      'Report the reward of a session outside any run; the same number again changes nothing, and no run trains on it',
    keys: ['admin', 'trial'],
    body: { schema: 'Reward', required: true },
    reply: 'RewardReply',
    failures: {
      ...BAD,
      ...KEY,
      ...UNKNOWN,
      409: 'The session belongs to a run, has another reward already, or its attempt is closed',
      413: 'The body is too large',
      ...STORE,
    },
  },
  {
    id: 'claim',
    method: 'post',
    path: '/runs/{run_id}/groups',
    summary:
      'Claim the next group of a run with `rollouts: external`, for a task of your program; each trial has a base URL and a key for its agent',
    keys: ['run', 'admin'],
    body: { schema: 'Claim', required: true },
    reply: 'ClaimReply',
    failures: {
      ...BAD,
      ...KEY,
      404: 'No such run',
      409: 'The run runs its agents itself',
      413: 'The body is too large',
      ...STORE,
    },
  },
  {
    id: 'report',
    method: 'post',
    path: '/runs/{run_id}/trials/{trial_id}/reward',
    summary: 'End a claimed trial with its reward, or without one; the same report again changes nothing',
    keys: ['run', 'admin'],
    body: { schema: 'Report', required: true },
    reply: 'ReportReply',
    failures: {
      ...BAD,
      ...KEY,
      404: 'The run has no such claimed trial',
      409: 'The trial has ended otherwise: at its deadline, with its run, or by another report',
      413: 'The body is too large',
      ...STORE,
    },
  },
  {
    ...admin,
    id: 'delete',
    method: 'delete',
    path: SESSION,
    summary: 'Hide a session and revoke its key',
    reply: 'Deleted',
    failures: { ...KEY, ...UNKNOWN, ...STORE },
  },
  {
    ...admin,
    id: 'batch_delete',
    method: 'post',
    path: '/sessions/batch_delete',
    summary: 'Hide up to 1,000 sessions and revoke their keys; unknown ids and repeated requests change nothing',
    body: { schema: 'Deletion', required: true },
    reply: 'DeletedSessions',
    failures: { ...BAD, ...KEY, 413: 'The body is too large', ...STORE },
  },
  {
    ...admin,
    id: 'list',
    method: 'get',
    path: '/sessions',
    summary: 'List sessions page by page, the oldest first',
    query: listing,
    reply: 'Page',
    failures: { ...BAD, ...KEY, ...STORE },
  },
  {
    ...admin,
    id: 'export',
    method: 'get',
    path: '/sessions/export',
    summary:
      'Export sessions with their calls, one a line; with `samples=true` one `SampleLine` a line. Continue an export that broke off after `cursor`, the last line’s `session_id`',
    query: exporting,
    reply: 'Session',
    lines: true,
    failures: { ...BAD, ...KEY, ...STORE },
  },
  {
    ...admin,
    id: 'transcript',
    method: 'get',
    path: `${SESSION}/transcript`,
    summary: 'Read what an attempt’s agent saw, call by call, with each message once',
    query: transcriptQuery,
    reply: 'Transcript',
    failures: { ...BAD, ...KEY, ...UNKNOWN, ...SLOW },
  },
  {
    ...admin,
    id: 'call_request',
    method: 'get',
    path: `${SESSION}/calls/{call_id}/request`,
    summary: 'Read the whole request of one call, to send it again elsewhere',
    reply: 'CallRequest',
    failures: {
      ...BAD,
      ...KEY,
      404: 'No such session or call, or the request was refused and is not kept',
      413: 'The calls that the request builds on are too large',
      ...SLOW,
    },
  },
  {
    ...admin,
    id: 'tokens',
    method: 'get',
    path: `${SESSION}/tokens`,
    summary: 'Read the same as `samples`, as the page on runs does: it waits for other readers',
    query: attemptQuery,
    reply: 'Samples',
    failures: { ...BAD, ...KEY, ...UNKNOWN, 413: 'The attempt is too long for a browser', ...SLOW },
  },
  {
    ...admin,
    id: 'runs',
    method: 'get',
    path: '/runs',
    summary: 'List the runs page by page, the newest first',
    query: runsQuery,
    reply: 'RunList',
    failures: { ...BAD, ...KEY, ...SLOW },
  },
  {
    ...admin,
    id: 'start_run',
    method: 'post',
    path: '/runs',
    summary:
      'Check a run file and start its run, as `npx trialgate train` does: lines of progress, and then the run or why it was not started. Not for web pages of other origins',
    body: { schema: 'RunStart', required: true },
    reply: 'StartLine',
    lines: true,
    failures: {
      400: 'A field, the body or the run file is invalid, or names what is neither bundled nor of the earlier run; the message says why',
      ...KEY,
      403: 'Without an admin key: a program of another machine or a web page of another origin sent it',
      404: 'There is no run `as`',
      413: 'The body is too large',
      415: 'The content type is not JSON',
      500: 'Temporal, an engine or the trainer does not answer',
      501: 'This gateway starts no runs',
      503: 'Another run is being checked, PostgreSQL cannot be reached, or the gateway stopped; the message says whether to try again',
    },
  },
  {
    ...admin,
    id: 'run',
    method: 'get',
    path: RUN,
    summary: 'Read a run’s settings and its evaluations',
    reply: 'RunDetails',
    failures: { ...KEY, ...NO_RUN, ...SLOW },
  },
  {
    ...admin,
    id: 'operate',
    method: 'post',
    path: RUN,
    summary:
      'Pause, resume, stop, cancel, redo or fork a run, as the command of that name does; not for web pages of other origins',
    body: { schema: 'RunVerb', required: true },
    reply: 'VerbReply',
    failures: {
      400: 'A field or the body is invalid, or the run refuses; the message says why',
      ...KEY,
      403: 'Without an admin key: a program of another machine or a web page of another origin sent it',
      404: 'No such run, or it is not under way',
      413: 'The body is too large',
      415: 'The content type is not JSON',
      500: 'Temporal or the run does not answer',
      501: 'This gateway changes no runs',
      503: 'The run is still busy with another verb, PostgreSQL cannot be reached, or the gateway stopped; the message says whether to try again',
    },
  },
  {
    ...admin,
    id: 'run_events',
    method: 'get',
    path: `${RUN}/events`,
    summary:
      'Follow a run by server-sent events: `now` at first, `changed` when something of it has changed. With `Last-Event-ID` the first is `changed` too if something changed since',
    reply: { type: 'text/event-stream' },
    failures: {
      ...KEY,
      ...NO_RUN,
      501: 'This gateway sends no events',
      503: 'Too many clients follow runs, or PostgreSQL cannot be reached: try again',
    },
  },
  {
    ...admin,
    id: 'iterations',
    method: 'get',
    path: `${RUN}/iterations`,
    summary: 'Read a run’s iterations with their rewards and metrics, all takes of each',
    query: iterationsQuery,
    reply: 'IterationList',
    failures: { ...BAD, ...KEY, ...NO_RUN, ...SLOW },
  },
  {
    ...admin,
    id: 'timeline',
    method: 'get',
    path: `${RUN}/iterations/{iteration}/timeline`,
    summary:
      'Read when each attempt of a take’s trials began and ended, with the times of its step and what it waits for',
    query: timelineQuery,
    reply: 'Timeline',
    failures: { ...BAD, ...KEY, 404: 'No such run, iteration or take', ...SLOW },
  },
  {
    ...admin,
    id: 'groups',
    method: 'get',
    path: `${RUN}/groups`,
    summary: 'List a run’s groups with their trials; those whose rewards vary most come first',
    query: groupsQuery,
    reply: 'GroupList',
    failures: { ...BAD, ...KEY, ...NO_RUN, ...SLOW },
  },
  {
    ...admin,
    id: 'dropped',
    method: 'get',
    path: `${RUN}/dropped`,
    summary: 'Count a run’s groups, trials, attempts and calls that are not trained, by reason',
    reply: 'DroppedWork',
    failures: { ...KEY, ...NO_RUN, ...SLOW },
  },
  {
    ...admin,
    id: 'search',
    method: 'get',
    path: `${RUN}/search`,
    summary: 'Search the messages of a run’s transcripts for words and phrases, the newest trials first',
    query: searchQuery,
    reply: 'SearchResult',
    failures: { ...BAD, ...KEY, ...NO_RUN, ...SLOW },
  },
  {
    ...admin,
    id: 'engines',
    method: 'get',
    path: '/engines',
    summary: 'List the engines, with the calls that this process has under way there',
    reply: 'EngineList',
    failures: { ...KEY, ...STORE },
  },
  {
    ...admin,
    id: 'change_engine',
    method: 'post',
    path: '/engines',
    summary:
      'Join an engine to the deployment’s or let a drained one serve again (`join`), give it no new calls (`drain`), or remove one that was joined so (`leave`)',
    body: { schema: 'EngineChange', required: true },
    reply: 'EngineList',
    failures: {
      ...BAD,
      ...KEY,
      404: 'No such engine',
      409: 'The engine belongs to a run, or something else names it',
      413: 'The body is too large',
      ...STORE,
    },
  },
  {
    ...admin,
    id: 'deployment',
    method: 'get',
    path: '/deployment',
    summary: 'Read the state of the engines, and what of the runs under way works and waits',
    reply: 'Deployment',
    failures: { ...KEY, ...SLOW },
  },
  {
    id: 'health',
    method: 'get',
    path: '/health',
    summary: 'Report that the process serves',
    keys: [],
    reply: 'Health',
    failures: {},
  },
  {
    id: 'metrics',
    method: 'get',
    path: '/metrics',
    summary: 'Read counters in Prometheus’s text format',
    keys: [],
    reply: { type: 'text/plain' },
    failures: {},
  },
];
