import { eq, sql } from 'drizzle-orm';
import { expect, test } from 'vitest';
import { openAttempt } from '../../store/queries/open-attempt.ts';
import { recordCalls } from '../../store/queries/record-calls.ts';
import { sealAttempt } from '../../store/queries/seal-attempt.ts';
import { calls, runs } from '../../store/schema.ts';
import { useDatabase } from '../../tests/support/harness/use-database.ts';
import { callRecord } from '../../tests/support/scenarios/call-record.ts';
import { agentNames, readTrialTrace } from './read-trial-traces.ts';

const store = useDatabase();
const START = Date.now();
const at = (seconds: number) => new Date(START + 1000 * seconds);

const TOOLS = [{ type: 'function', function: { name: 'bash', parameters: { type: 'object' } } }];
const QUESTION = { role: 'user', content: 'Which files are there?' };
const ASKS = {
  role: 'assistant',
  content: null,
  tool_calls: ['ls', 'pwd'].map((command, i) => ({
    id: `call_${i}`,
    type: 'function',
    function: { name: 'bash', arguments: JSON.stringify({ command }) },
  })),
};
const RESULT = { role: 'tool', tool_call_id: 'call_0', content: 'a.txt' };

const reply = (message: object) => ({ choices: [{ index: 0, message, finish_reason: 'stop', logprobs: {} }] });

test('a trace has the trial, its calls with messages, tools, replies, tokens and times, and its tool calls with their results', async () => {
  await openAttempt(store.db, { trialId: 'tools', attempt: 1, task: 'tasks/find', agent: 'shell', policyVersion: 3 });
  await recordCalls(store.db, [
    callRecord({
      trialId: 'tools',
      request: { model: 'm', temperature: 1, messages: [QUESTION], tools: TOOLS },
      startedAt: at(1),
      endedAt: at(2),
      promptTokenIds: Int32Array.from([1, 2, 3]),
      response: reply(ASKS),
      choice: {
        completionTokenIds: Int32Array.from([4, 5]),
        finishReason: 'tool_calls',
        policyVersion: 3,
      },
    }),
  ]);
  await recordCalls(store.db, [
    callRecord({
      trialId: 'tools',
      status: 'failed',
      httpStatus: 500,
      fault: 'engine',
      reason: 'engine_500: out of memory',
      request: { model: 'm', messages: [QUESTION, ASKS, RESULT], tools: TOOLS },
      startedAt: at(5),
      endedAt: at(6),
    }),
  ]);
  await sealAttempt(store.db, { trialId: 'tools', outcome: 'agent_error', reason: 'exit 1', rewards: { reward: 0.5 } });

  const trace = await readTrialTrace(store.db, 'tools', async (label) => label);
  expect(trace).toMatchObject({
    id: 'tools',
    rewards: { reward: 0.5 },
    tags: {
      'trialgate.task': 'tasks/find',
      'trialgate.agent': 'shell',
      'trialgate.outcome': 'agent_error',
      'trialgate.policy_version': '3',
    },
  });
  const [root, first, ls, pwd, second, ...more] = trace?.spans ?? [];
  expect(more).toEqual([]);
  expect(root).toMatchObject({
    name: 'find',
    type: 'AGENT',
    outputs: { outcome: 'agent_error', rewards: { reward: 0.5 } },
    error: 'exit 1',
  });
  expect(root?.end).toBeGreaterThanOrEqual(at(6).getTime());
  expect(first).toMatchObject({
    name: 'call 1',
    type: 'CHAT_MODEL',
    start: at(1).getTime(),
    end: at(2).getTime(),
    inputs: { model: 'm', temperature: 1, messages: [QUESTION], tools: TOOLS },
    outputs: { choices: [{ message: ASKS, finish_reason: 'stop' }] },
    attributes: {
      'mlflow.chat.tokenUsage': { input_tokens: 3, output_tokens: 2, total_tokens: 5 },
      'mlflow.llm.model': 'm',
      'trialgate.policy_version': 3,
    },
  });
  expect(first?.error).toBeUndefined();
  expect(ls).toEqual({
    name: 'bash',
    type: 'TOOL',
    start: at(2).getTime(),
    end: at(5).getTime(),
    inputs: { command: 'ls' },
    outputs: 'a.txt',
  });
  expect(pwd).toMatchObject({ inputs: { command: 'pwd' }, end: at(2).getTime() });
  expect(pwd?.outputs).toBeUndefined();
  expect(second).toMatchObject({ error: 'engine_500: out of memory', start: at(5).getTime() });
});

test('a trace of a long trial is small: texts are cut, messages in the middle and calls after the hundredth are left out, and it says so', async () => {
  await openAttempt(store.db, { trialId: 'long', attempt: 1 });
  const long = { role: 'user', content: 'x'.repeat(10_000) };
  const messages = [QUESTION, ...Array.from({ length: 12 }, () => long), { role: 'user', content: 'the last' }];
  const records = Array.from({ length: 110 }, () => callRecord({ trialId: 'long', request: { messages } }));
  await recordCalls(store.db, records);
  await sealAttempt(store.db, { trialId: 'long', outcome: 'scored', rewards: { reward: 1 } });

  const trace = await readTrialTrace(store.db, 'long', async (label) => label);
  const [root, ...spans] = trace?.spans ?? [];
  expect(spans).toHaveLength(100);
  expect(root?.attributes?.['trialgate.note']).toMatch(/^10 further calls are left out/);
  expect(JSON.stringify(spans[0]?.inputs)).toMatch(
    /messages are left out here.*6000 more characters are in the record.*the last/,
  );
  expect(JSON.stringify(trace).length).toBeLessThan(5_000_000);
});

test('a trace ends before the call with which it would have more than 64 MB to read', async () => {
  await openAttempt(store.db, { trialId: 'big', attempt: 1 });
  const second = callRecord({ trialId: 'big' });
  await recordCalls(store.db, [callRecord({ trialId: 'big' }), second, callRecord({ trialId: 'big' })]);
  await store.db
    .update(calls)
    .set({ response: sql`convert_to(repeat('x', 65 * 1024 * 1024), 'utf8')` })
    .where(eq(calls.id, second.id));
  const trace = await readTrialTrace(store.db, 'big', async (label) => label);
  expect(trace?.spans.map(({ name }) => name)).toEqual(['big', 'call 1']);
});

test('an agent of a run whose file an earlier release wrote and this one refuses is named by its label', async () => {
  await store.db.insert(runs).values({ id: 'old', config: { agents: 'one' } });
  expect(await agentNames(store.db, 'old')('inline:one')).toBe('inline:one');
});
