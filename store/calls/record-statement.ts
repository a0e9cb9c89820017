import { DEFAULT_TRIAL_BYTES, ROW_BYTES } from '../trial-bytes.ts';

/** A column of `calls`: its name, its key in the JSON rows, and its PostgreSQL type. */
type Column = { name: string; key: string; type: string };

const TEXTS =
  'trialId status protocol reason fault idempotencyKey traceparent finishReason engine weightVersion continuation untrainable';
const columns: Column[] = [
  ...named('id choiceOf baseId parentId', 'uuid'),
  ...named(TEXTS, 'text'),
  ...named('attempt httpStatus requestBytes sharedIds policyVersion', 'integer'),
  ...named('stream', 'boolean'),
  ...named('sampling versionSpans routedExperts', 'jsonb'),
  ...named('startedAt firstTokenAt endedAt', 'timestamptz'),
  ...named('digest request response promptTokenIds completionTokenIds logprobs samplingMask', 'bytea'),
];

function named(keys: string, type: string): Column[] {
  return keys
    .split(' ')
    .map((key) => ({ key, type, name: key.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`) }));
}

const isBytes = ({ type }: Column): boolean => type === 'bytea';
const isTime = ({ type }: Column): boolean => type === 'timestamptz';
const declared = [
  '"reserved" boolean',
  '"fillsBytes" boolean',
  '"bytesSoFar" bigint',
  ...columns.map((column) => `"${column.key}" ${declaredAs(column)}`),
].join(', ');
const stored = [
  `${ROW_BYTES}`,
  `coalesce((routed_experts->>'bytes')::integer, 0)`,
  ...columns.filter(isBytes).map(({ name }) => `coalesce(length(${name}), 0)`),
].join(' + ');
const taken = columns.map((column) => {
  const value = `x."${column.key}"`;
  if (isBytes(column)) return `substring($2::bytea from ${value}[1] for ${value}[2])`;
  return isTime(column) ? `to_timestamp(${value} / 1000)` : value;
});

/** Bytes are the place of their part in the block. Times are milliseconds since the epoch: to write and read them as text takes long. */
function declaredAs(column: Column): string {
  if (isBytes(column)) return 'integer[]';
  return isTime(column) ? 'double precision' : column.type;
}

/**
 * Records calls in one statement, which is one round trip and one transaction. It locks the trials against sealing, inserts the rows of
 * calls whose attempt is open, counts what they use of their budgets, releases their reservations, and returns the ids that it inserted.
 * It refuses a call whose reservation was lost, because another call may have its place, and a call that the trial's budget of bytes has
 * no room for. Numbers are passed as JSON and bytes as one block, because one parameter for each value costs more than the rest of the
 * commit. The statement itself sets that its commit waits for the disk, because a connection pooler such as Hyperdrive keeps no session
 * settings. `$4` has the trials whose budget of bytes a call uses up.
 */
const statement = (more: string): string => `
with durable as materialized (
  select set_config('synchronous_commit', 'on', true)
), open as materialized (
  select id, attempt, reserved, used_bytes, coalesce((budgets->>'bytes')::bigint, ${DEFAULT_TRIAL_BYTES}) as bytes from trials, durable where id = any($3::text[]) and status = 'created' order by id for no key update of trials
), inserted as (
  insert into calls (${columns.map((column) => column.name).join(', ')})
  select ${taken.join(', ')}
  from rows from (json_to_recordset($1::json) as (${declared})) with ordinality x join open on open.id = x."trialId" and open.attempt = x.attempt
  where (x.reserved is not true or open.reserved ? coalesce(x."choiceOf", x.id)::text) and (x."fillsBytes" is true or open.used_bytes + x."bytesSoFar" <= open.bytes)
  order by x.ordinality
  on conflict do nothing
  returning id, trial_id, attempt, digest, idempotency_key, status, choice_of, reason, coalesce(length(completion_token_ids), 0) / 4 as tokens, ${stored} as bytes
), ${more}used as (
  select trial_id, array_agg(id::text) as ids, count(*) as recorded, sum(tokens) as tokens, sum(bytes) as bytes,
    count(*) filter (where status <> 'failed' and choice_of is null) as calls,
    max(substring(reason from '^(budget_exhausted|context_length_exceeded):')) as exhausted
  from inserted group by trial_id
), counted as (
  update trials set recorded = trials.recorded + used.recorded, used_calls = used_calls + used.calls, used_tokens = used_tokens + used.tokens,
    used_bytes = greatest(trials.used_bytes + used.bytes, case when trials.id = any($4::text[]) then coalesce((budgets->>'bytes')::bigint, ${DEFAULT_TRIAL_BYTES}) end),
    reserved = trials.reserved - used.ids, exhausted = coalesce(trials.exhausted, used.exhausted)
  from used where trials.id = used.trial_id
)
select id from inserted where choice_of is null`;

/** Adds the completed calls of `$5` to the undelivered ones. */
const UNDELIVERED = `undelivered as (
  insert into undelivered_calls (call_id, trial_id, attempt, digest, idempotency_key, backend)
  select id, trial_id, attempt, digest, idempotency_key, pg_backend_pid() from inserted where status = 'completed' and id = any($5::uuid[])
), `;

/** Stores the blobs to which the inserted calls refer. */
const BLOBS = `kept as (
  insert into blobs (trial_id, digest, bytes)
  select distinct on (inserted.trial_id, digest) inserted.trial_id, decode(x."routedExperts"->>'sha256', 'hex') as digest, substring($2::bytea from x.blob[1] for x.blob[2])
  from json_to_recordset($1::json) as x (id uuid, "routedExperts" jsonb, blob integer[]) join inserted on inserted.id = x.id
  where x.blob is not null
  on conflict do nothing
), `;

type Statement = { name: string; text: string };
const statements = new Map<string, Statement>();

/** These parts are left out where nothing needs them, because they cost every commit: most clients do not mark their retries, and most models are no mixtures. */
export function recordStatement({ isRetryable, hasBlobs }: { isRetryable: boolean; hasBlobs: boolean }): Statement {
  const name = `record_calls${isRetryable ? '_retryable' : ''}${hasBlobs ? '_blobs' : ''}`;
  const known = statements.get(name);
  if (known) return known;
  const made = { name, text: statement(`${isRetryable ? UNDELIVERED : ''}${hasBlobs ? BLOBS : ''}`) };
  statements.set(name, made);
  return made;
}
