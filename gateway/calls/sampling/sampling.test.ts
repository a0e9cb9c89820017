import { expect, test } from 'vitest';
import { sealAttempt } from '../../../store/queries/seal-attempt.ts';
import { sampledBody } from './sampling.ts';
import { ASK, readStream, useGateway } from '../../../tests/support/harness/gateways.ts';

const gateway = useGateway();

test('in a training run the run’s sampling settings replace those of the agent’s request', async () => {
  await gateway.givePool('run', 'run@3');
  gateway.engine.weightVersion = 'run@3';
  const trial = await gateway.trial({ runId: 'run', sampling: { temperature: 0.8, max_tokens: 4 } });
  const own = {
    temperature: 0,
    top_p: 0.5,
    top_k: 5,
    min_p: 0.1,
    presence_penalty: 1,
    repetition_penalty: 2,
    seed: 7,
    max_completion_tokens: 100,
  };
  await trial.chat({ ...ASK, ...own });
  const { body } = gateway.engine.last;
  const forced = {
    temperature: 0.8,
    top_p: 1,
    top_k: -1,
    min_p: 0,
    presence_penalty: 0,
    frequency_penalty: 0,
    repetition_penalty: 1,
    max_tokens: 4,
  };
  expect(body).toMatchObject(forced);
  expect(body).not.toHaveProperty('max_completion_tokens');
  expect(body).not.toHaveProperty('seed');
  expect(body.cache_salt).toBe('run%403');
  const [call] = await trial.calls();
  expect(call).toMatchObject({ sampling: forced, weightVersion: 'run@3', policyVersion: 3, untrainable: null });
  await trial.chat({ ...ASK, max_tokens: 2 });
  expect(gateway.engine.last.body.max_tokens).toBe(2);
});

test('where a run leaves a sampling setting to the agent, the agent’s value counts, and the run’s default where the agent gives none', async () => {
  await gateway.givePool('run', 'run@3');
  gateway.engine.weightVersion = 'run@3';
  const trial = await gateway.trial({
    runId: 'run',
    sampling: {
      temperature: { default: 0.7 },
      top_p: 'agent',
      top_k: { default: 40 },
      seed: 'agent',
      max_tokens: { default: 3 },
    },
  });
  await trial.chat({ ...ASK, temperature: 0.2, top_p: 0.5, seed: 7 });
  expect(gateway.engine.last.body).toMatchObject({
    temperature: 0.2,
    top_p: 0.5,
    top_k: 40,
    min_p: 0,
    seed: 7,
    max_tokens: 3,
  });
  await trial.chat({ ...ASK, top_k: 7, max_tokens: 5 });
  expect(gateway.engine.last.body).toMatchObject({ temperature: 0.7, top_k: 7, min_p: 0, max_tokens: 5 });
  expect(gateway.engine.last.body).not.toHaveProperty('top_p');
});

test('a run’s stop strings and `chat_template_kwargs` override those of the agent’s request', async () => {
  const sampling = { stop: ['</answer>'], chat_template_kwargs: { enable_thinking: false } };
  const trial = await gateway.trial({ sampling });
  await trial.chat({ ...ASK, stop: ['\n'], chat_template_kwargs: { enable_thinking: true, lines: 2 } });
  expect(gateway.engine.last.body).toMatchObject({
    stop: ['</answer>'],
    chat_template_kwargs: { enable_thinking: false, lines: 2 },
  });
  expect((await trial.calls())[0]?.sampling).toMatchObject({
    stop: ['</answer>'],
    chat_template_kwargs: { enable_thinking: false, lines: 2 },
  });
  const ofText = sampledBody({ body: { prompt: 'x' }, maxTokens: null, n: 1 }, { runId: null, sampling }, null);
  expect(ofText).toEqual({ prompt: 'x', stop: ['</answer>'] });
  const other = await gateway.trial({ sampling: { stop: { default: ['.'] } } });
  await other.chat(ASK);
  expect(gateway.engine.last.body).toMatchObject({ stop: ['.'] });
  await other.chat({ ...ASK, stop: ['!'] });
  expect(gateway.engine.last.body).toMatchObject({ stop: ['!'] });
});

test('an engine’s raw log-probabilities make a call at another temperature than 1 untrainable', async () => {
  gateway.engine.logprobsMode = 'raw_logprobs';
  const trial = await gateway.trial();
  await trial.chat(ASK);
  await trial.chat({ ...ASK, temperature: 0.7 });
  await trial.chat({ ...ASK, temperature: 1 });
  const calls = await trial.calls();
  expect(calls.map((call) => call.untrainable)).toEqual([null, 'sampling_not_reproducible', null]);
  expect(calls[1]?.sampling).toEqual({ temperature: 0.7, logprobs_mode: 'raw_logprobs' });
});

test('a trial outside any run is sampled as its agent asks', async () => {
  const trial = await gateway.trial();
  await trial.chat({ ...ASK, temperature: 0.3, top_p: 0.9, max_tokens: 3 });
  expect(gateway.engine.last.body).toMatchObject({ temperature: 0.3, top_p: 0.9, max_tokens: 3 });
  expect(gateway.engine.last.body).not.toHaveProperty('top_k');
  expect(await trial.calls()).toMatchObject([
    { untrainable: 'sampling_not_reproducible', sampling: { temperature: 0.3, top_p: 0.9, max_tokens: 3 } },
  ]);
});

const finishOf = async (reply: Response) => (await reply.json()).choices[0].finish_reason;

test('a call past the budget of calls ends with `length`, the session shows the exhausted budget, and a new attempt has its own', async () => {
  const trial = await gateway.trial({ budgets: { calls: 2 } });
  const ends = [];
  for (let i = 0; i < 4; i++) ends.push(await finishOf(await trial.chat(ASK)));
  expect(ends).toEqual(['stop', 'stop', 'length', 'length']);
  const stream = await readStream(await trial.chat({ ...ASK, stream: true }));
  expect([stream.done, stream.finish?.choices?.[0]?.finish_reason]).toEqual([true, 'length']);
  expect(await (await gateway.admin('GET', `/sessions/${trial.id}`)).json()).toMatchObject({
    exhausted: 'budget_exhausted',
    usage: { calls: 2, tokens: 10 },
    unfinished: Array(3).fill({ status: 'failed', http_status: 200 }),
  });
  await sealAttempt(gateway.db, { trialId: trial.id, attempt: 1, outcome: 'infra_error' });
  const next = await gateway.trial({ trialId: trial.id, attempt: 2 });
  expect(await finishOf(await next.chat(ASK))).toBe('stop');
});

test('with `budget_end: refuse` a call past the budget gets 429 with the header that tells SDKs not to retry', async () => {
  await gateway.restart({ settings: { budgetEnd: 'refuse' } });
  const trial = await gateway.trial({ budgets: { calls: 1 } });
  await trial.chat(ASK);
  const reply = await trial.chat(ASK);
  expect([reply.status, reply.headers.get('x-should-retry')]).toEqual([429, 'false']);
  expect((await reply.json()).error).toMatchObject({
    code: 'budget_exhausted',
    message: expect.stringContaining('1 calls'),
  });
});

test('a trial’s budget of tokens limits the `max_tokens` of a call to the tokens that are left', async () => {
  const trial = await gateway.trial({ budgets: { tokens: 7 } });
  await trial.chat(ASK);
  await trial.chat(ASK);
  expect(gateway.engine.last.body.max_tokens).toBe(2);
  await trial.chat(ASK);
  expect(gateway.engine.seen).toHaveLength(2);
});

test('of a trial’s concurrent calls only as many are sampled as its budget of calls allows', async () => {
  gateway.engine.delay = 20;
  const trial = await gateway.trial({ budgets: { calls: 1 } });
  const ends = await Promise.all([1, 2, 3].map(async () => finishOf(await trial.chat(ASK))));
  expect(ends.toSorted()).toEqual(['length', 'length', 'stop']);
});

test('a call after its trial’s budget of seconds is used up ends with `length`', async () => {
  const trial = await gateway.trial({ budgets: { seconds: 0.05 } });
  await new Promise((resolve) => setTimeout(resolve, 80));
  expect(await finishOf(await trial.chat(ASK))).toBe('length');
});
