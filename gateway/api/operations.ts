import type { z } from 'zod';
import type { SchemaName } from './document.ts';
import { attemptQuery, exporting, listing, recordQuery } from './schemas.ts';

export type Operation = {
  /** The name of the method in generated clients. */
  id: string;
  method: 'get' | 'post' | 'delete';
  path: string;
  summary: string;
  /** Any one of these keys opens the route. An empty list leaves it open. */
  keys: ('admin' | 'trial')[];
  query?: z.ZodObject;
  body?: { schema: SchemaName; required: boolean };
  reply: SchemaName | { type: string };
  /** True when the reply is a stream with one such value a line. */
  lines?: true;
  failures: Record<number, string>;
};

const BAD = { 400: 'A field or the body is not what it should be' };
const KEY = { 401: 'The key is wrong' };
const UNKNOWN = { 404: 'No such session' };
const STORE = { 503: 'PostgreSQL is away: try again' };
const SESSION = '/sessions/{trial_id}';
const admin: Pick<Operation, 'keys'> = { keys: ['admin'] };

export const OPERATIONS: readonly Operation[] = [
  {
    ...admin,
    id: 'open',
    method: 'post',
    path: SESSION,
    summary: 'Open a session, or its next attempt, which closes the one before; the same attempt again changes nothing',
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
  { ...admin, id: 'get', method: 'get', path: SESSION, summary: 'All calls of an attempt, whole', query: recordQuery, reply: 'Session', failures: { ...BAD, ...KEY, ...UNKNOWN, ...STORE } },
  {
    ...admin,
    id: 'samples',
    method: 'get',
    path: `${SESSION}/samples`,
    summary: "An attempt's trainable sequences; a turn's mask is 1 in one of them only",
    query: attemptQuery,
    reply: 'Samples',
    failures: { ...BAD, ...KEY, ...UNKNOWN, ...STORE },
  },
  { ...admin, id: 'complete', method: 'post', path: `${SESSION}/complete`, summary: 'No more calls are accepted', reply: 'Completed', failures: { ...KEY, ...UNKNOWN, ...STORE } },
  {
    id: 'reward',
    method: 'post',
    path: `${SESSION}/reward`,
    summary: "The agent's own score of a session outside any run; the same number again changes nothing, and no run trains on it",
    keys: ['admin', 'trial'],
    body: { schema: 'Reward', required: true },
    reply: 'RewardReply',
    failures: { ...BAD, ...KEY, ...UNKNOWN, 409: 'It is of a run, has another reward already, or its attempt is closed', 413: 'The body is too large', ...STORE },
  },
  { ...admin, id: 'delete', method: 'delete', path: SESSION, summary: 'Hide a session and revoke its key', reply: 'Deleted', failures: { ...KEY, ...UNKNOWN, ...STORE } },
  {
    ...admin,
    id: 'batch_delete',
    method: 'post',
    path: '/sessions/batch_delete',
    summary: 'Hide sessions and revoke their keys, up to 1,000 at once; an unknown id changes nothing, and the same request again neither',
    body: { schema: 'Deletion', required: true },
    reply: 'DeletedSessions',
    failures: { ...BAD, ...KEY, 413: 'The body is too large', ...STORE },
  },
  { ...admin, id: 'list', method: 'get', path: '/sessions', summary: 'Sessions, the oldest first, a page at a time', query: listing, reply: 'Page', failures: { ...BAD, ...KEY, ...STORE } },
  {
    ...admin,
    id: 'export',
    method: 'get',
    path: '/sessions/export',
    summary: 'Sessions with their calls, a line each; with `samples=true` a `SampleLine` each. One that broke off goes on after `cursor`, the last line’s `session_id`',
    query: exporting,
    reply: 'Session',
    lines: true,
    failures: { ...BAD, ...KEY, ...STORE },
  },
  { id: 'health', method: 'get', path: '/health', summary: 'The process serves', keys: [], reply: 'Health', failures: {} },
  { id: 'metrics', method: 'get', path: '/metrics', summary: "Counters in Prometheus' text format", keys: [], reply: { type: 'text/plain' }, failures: {} },
];
