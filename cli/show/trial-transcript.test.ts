import { eq } from 'drizzle-orm';
import { expect, test } from 'vitest';
import { runConfig } from '../../core/run-config/run-config.ts';
import { openAttempt } from '../../store/queries/open-attempt.ts';
import { recordCalls } from '../../store/queries/record-calls.ts';
import { runs, trials } from '../../store/schema.ts';
import { callRecord } from '../../tests/support/scenarios/call-record.ts';
import { useDatabase } from '../../tests/support/harness/use-database.ts';
import { show } from './show.ts';
import { readTrialRecord, transcript } from './trial-transcript.ts';

const store = useDatabase();
const printed = async (trialId: string) => transcript(await readTrialRecord(store.db, trialId));

test('a transcript ends with each reason why calls are not trained, once, as a sentence that says what to do', async () => {
  await openAttempt(store.db, { trialId: 'strict', attempt: 1 });
  const sampling = { constraints: ['strict_tools'], constrained_decoding: 'enforce' };
  for (const [own, untrainable] of [
    [sampling, 'sampling_not_reproducible'],
    [sampling, 'sampling_not_reproducible'],
    [{}, 'no_token_ids'],
    [{}, null],
  ] as const)
    await recordCalls(store.db, [callRecord({ trialId: 'strict', sampling: own, choice: { untrainable } })]);
  const [first, second, ...more] = (await printed('strict')).split('\n').filter((line) => line.startsWith('── '));
  expect(first).toMatch(/^── 2 calls are not trained: .* Set `constrained_decoding: hint` in the run file/);
  expect(second).toMatch(/^── 1 call is not trained: the engine did not return the token ids/);
  expect(more).toEqual([]);
});

test.each([
  ['unix:/run/engine.sock', "`npx trialgate up --engine-args '--enable-auto-tool-choice --tool-call-parser NAME'`"],
  ['http://127.0.0.1:8000', 'start vLLM with --enable-auto-tool-choice --tool-call-parser NAME, or SGLang with'],
])('a transcript says how to start the engine %s when that refused tools for want of a parser', async (engine, how) => {
  const trialId = `tools-${engine.length}`;
  await openAttempt(store.db, { trialId, attempt: 1 });
  const reason = `engine_400: "auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set`;
  const refused = { trialId, engine, reason, status: 'failed', httpStatus: 400, fault: 'request' } as const;
  await recordCalls(store.db, [callRecord(refused), callRecord(refused)]);
  expect((await printed(trialId)).split(how)).toHaveLength(2);
});

test('a transcript shows a reward that is a sum of decimals without the digits that nobody wrote', async () => {
  const rewards = { short: -1.25, correct: 0.1 + 0.7 };
  await openAttempt(store.db, { trialId: 'decimals', attempt: 1 });
  await store.db.update(trials).set({ outcome: 'scored', rewards }).where(eq(trials.id, 'decimals'));
  expect(rewards.correct).not.toBe(0.8);
  expect(await printed('decimals')).toContain('short -1.25   correct 0.8');
});

test('a transcript lists the tools of a request as sent, where they change, and says once that the model was shown none', async () => {
  const trialId = 'tools';
  await openAttempt(store.db, { trialId, attempt: 1 });
  const tools = ['add', 'divide'].map((name) => ({ type: 'function', function: { name, parameters: {} } }));
  const messages = [{ role: 'user', content: 'Add 1 and 2.' }];
  for (const sent of [tools, tools, tools.slice(0, 1), []])
    await recordCalls(store.db, [
      callRecord({
        trialId,
        request: { messages, ...(sent.length > 0 ? { tools: sent } : {}) },
        sampling: sent.length > 0 ? { tools_not_shown: sent.length } : {},
      }),
      callRecord({
        trialId,
        status: 'failed',
        httpStatus: 400,
        fault: 'request',
        reason: 'engine_400: no',
        request: {},
      }),
    ]);
  const lines = (await printed(trialId)).split('\n');
  const listed = lines.flatMap((line, i) => (line === '▌tools' ? [lines[i + 1]] : []));
  expect(listed).toEqual(['add, divide', 'add', 'none from here on']);
  expect(lines.filter((line) => line.startsWith('── '))).toEqual([
    expect.stringMatching(/^── the request has 2 tools, this model's chat template shows none: .* Use a model/),
    expect.stringMatching(/^── the request has 1 tool, this model's chat template shows none: .* Use a model/),
  ]);
  expect(JSON.parse(await show(store.db, trialId, true, async () => null))).toMatchObject({
    calls: [{ tools }, { tools: [] }, { tools }, {}, { tools: [tools[0]] }, {}, { tools: [] }, {}],
  });
});

test('a transcript shows text parts as text and tool calls by name, also of a message that leaves its content out', async () => {
  await openAttempt(store.db, { trialId: 'parts', attempt: 1 });
  const calls = [{ id: 'c', type: 'function', function: { name: 'add', arguments: '{"a":1}' } }];
  const image = { type: 'image_url', image_url: { url: 'data:,' } };
  await recordCalls(store.db, [
    callRecord({
      trialId: 'parts',
      request: {
        messages: [
          { role: 'user', content: [{ type: 'text', text: 'Add "1".' }, image] },
          { role: 'assistant', tool_calls: [...calls, { type: 'custom', custom: { name: 'x', input: '' } }] },
          { role: 'tool', tool_call_id: 'c', content: '2' },
        ],
      },
    }),
  ]);
  expect(await printed('parts')).toContain(
    `▌user\nAdd "1".\n${JSON.stringify(image)}\n\n▌assistant\n→ add({"a":1})\n→ {"type":"custom","custom":{"name":"x","input":""}}\n\n▌tool\n2\n`,
  );
});

test('a trial that an earlier release opened is shown by its agent’s name, not by the agent’s place in the run file', async () => {
  const agents = [{ name: 'crew', command: ['x'] }];
  const config = runConfig.parse({ model: 'm', tasks: ['t'], iterations: 1, agents });
  await store.db.insert(runs).values({ id: 'run', config });
  for (const [trialId, agent] of [
    ['inline', 'inline:crew'],
    ['file', '/gone/solver.yaml'],
  ] as const)
    await openAttempt(store.db, { trialId, attempt: 1, runId: 'run', agent });
  expect(await printed('inline')).toMatch(/agent crew$/m);
  expect(await printed('file')).toMatch(/agent solver$/m);
});

test('`show` of an unknown name says that there is neither a run nor a trial, and how to list both', async () => {
  await expect(show(store.db, 'nosuchrun', false, async () => null)).rejects.toThrow(
    'there is neither a run nor a trial nosuchrun: "npx trialgate show" lists the runs, "npx trialgate trials RUN"',
  );
  await store.db.insert(runs).values({ id: 'suchrun', config: {} });
  await expect(show(store.db, 'suchrum', false, async () => null)).rejects.toThrow(
    'there is neither a run nor a trial suchrum (did you mean suchrun?): ',
  );
});
