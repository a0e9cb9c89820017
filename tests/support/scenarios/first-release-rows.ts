const json = (value: unknown): string => `convert_to('${JSON.stringify(value).replaceAll("'", "''")}', 'UTF8')`;
/** Returns numbers as a bytea, 4 bytes each, little-endian. */
const bytes = (values: Int32Array | Float32Array): string => `'\\x${Buffer.from(values.buffer).toString('hex')}'`;
const ids = (...values: number[]): string => bytes(new Int32Array(values));
const logprobs = (...values: number[]): string => bytes(new Float32Array(values));

const FIRST_CALL = '00000000-0000-4000-8000-000000000001';
const SECOND_CALL = '00000000-0000-4000-8000-000000000002';
const user = (content: string) => ({ is: { role: 'user', content } });
const reply = (content: string) => ({
  id: 'reply',
  choices: [{ index: 0, message: { role: 'assistant', content }, finish_reason: 'stop' }],
});

/** Plain SQL that fills every table as the first release did. It never changes, because those databases do not. */
export const FIRST_RELEASE_ROWS = `
insert into runs (id, config, status, reason, next_version, resumed_at, forked_from, created_at)
  values ('first', '{"iterations": 3}', 'blocked', 'the disk is full', 2, '2026-11-01T11:00:00Z', 'base@1', '2026-11-01T10:00:00Z');
insert into iterations (run_id, iteration, take, status, policy_version, trained_version, seconds, ended_at)
  values ('first', 0, 1, 'done', 0, 1, '{"train": 21.3}', '2026-11-01T10:30:00Z');
insert into groups (id, run_id, kind, iteration, take, ordinal, task, agent, size, policy_version, dropped, batch_iteration, batch_take)
  values ('first/0.1/0', 'first', 'train', 0, 1, 0, 'tasks/add', 'shell', 4, 0, 'no_spread', 0, 1);
insert into trials (id, run_id, group_id, member, task, agent, attempt, status, sampling, budgets, recorded, used_calls, used_tokens, reserved,
    policy_version, batch_iteration, batch_take, outcome, rewards, completed_at, sealed_at)
  values ('first-0.1-0-0', 'first', 'first/0.1/0', 0, 'tasks/add', 'shell', 2, 'completed', '{"temperature": 0.7}', '{"calls": 20, "tokens": 4096}', 2, 2, 5,
    '{"one": {"tokens": 64, "until": 1795000000}}', 0, 0, 1, 'scored', '{"tests": 0.5}', '2026-11-01T10:04:00Z', '2026-11-01T10:05:00Z');
insert into attempts (trial_id, attempt, outcome, reason, host, seconds, ended_at) values
  ('first-0.1-0-0', 1, 'infra_error', 'the engine was lost', 'here', '{"agent": 1.5}', '2026-11-01T10:02:00Z'),
  ('first-0.1-0-0', 2, 'scored', null, 'here', '{"agent": 2.5, "verify": 0.5}', '2026-11-01T10:05:00Z');
insert into calls (id, trial_id, attempt, status, http_status, protocol, stream, digest, base_id, shared_ids, request, response, prompt_token_ids,
    completion_token_ids, logprobs, finish_reason, sampling, engine, policy_label, policy_version, version_spans, parent_id, continuation, started_at, ended_at) values
  ('${FIRST_CALL}', 'first-0.1-0-0', 2, 'completed', 200, 'chat_completions', false, '\\x01', null, 0,
    ${json({ fields: { is: { model: 'policy' } }, lists: { messages: [0, [user('Add 1 and 2.')]] } })}, ${json(reply('3'))},
    ${ids(1, 2, 3)}, ${ids(4)}, ${logprobs(-0.5)}, 'stop', '{"temperature": 0.7}', 'unix:/engine.sock', 'first@0', 0, null, null, null,
    '2026-11-01T10:03:00Z', '2026-11-01T10:03:01Z'),
  ('${SECOND_CALL}', 'first-0.1-0-0', 2, 'completed', 200, 'chat_completions', true, '\\x02', '${FIRST_CALL}', 4,
    ${json({ fields: { is: { model: 'policy' } }, lists: { messages: [1, [{ is: { role: 'assistant', content: '3' } }, user('Sure? \u{1f914}')]] } })}, ${json(reply('Yes.'))},
    ${ids(5)}, ${ids(6, 7)}, ${logprobs(-0.25, -2)}, 'stop', '{"temperature": 0.7}', 'unix:/engine.sock', 'first@0', 0,
    '[{"version": 0, "start": 0, "end": 1}, {"version": 1, "start": 1, "end": 2}]', '${FIRST_CALL}', 'realigned', '2026-11-01T10:03:02Z', '2026-11-01T10:03:04Z');
insert into calls_under_way (key, until) values ('first-0.1-0-0 2 digest', '2126-11-01T10:00:00Z');
insert into batches (run_id, iteration, take, sha256, path, samples, trials, metrics) values ('first', 0, 1, '${'ab'.repeat(32)}', 'batches/ab.arrow', 3, 2, '{"samples": 3}');
insert into policy_versions (run_id, version, parent_version, iteration, take, step_key, checkpoint, checkpoint_sha256, canary, canary_tolerance, metrics)
  values ('first', 1, 0, 0, 1, 'key', 'checkpoints/1', 'sha', '{"token_ids": [1, 2], "logprobs": [-1]}', 0.125, '{"loss": 0.5}');
insert into publications (run_id, version, replica, label, checksum, canary_difference) values ('first', 1, 'unix:/engine.sock', 'first@1', 'sum', 0.0625);
insert into quarantined_tasks (run_id, task, reason) values ('first', 'tasks/broken', 'its verifier crashed three times');
insert into replicas (url, run_id, label, in_rotation) values ('unix:/engine.sock', 'first', 'first@0', false);
`;
