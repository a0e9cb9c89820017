import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { openDatabase } from '../../store/database.ts';
import { TestPostgres } from '../../store/testing/postgres.ts';
import { readStream, TestGateway } from '../testing/harness.ts';
import { TokenEngine } from '../testing/token-engine.ts';
import { decode, END } from '../testing/toy-tokenizer.ts';
import { converse, type Step } from '../testing/converse.ts';

const context = new TestGateway();
let engine: TokenEngine;
beforeAll(async () => {
  context.postgres = await TestPostgres.create();
  context.db = openDatabase(context.postgres.url);
}, 60_000);
afterEach(async () => {
  await context.gateway.close();
  await engine.stop();
});
afterAll(async () => {
  await context.db.$client.end();
  await context.postgres.close();
});

async function start(options: Partial<TokenEngine> = {}, tokenIn = true): Promise<void> {
  engine = Object.assign(await new TokenEngine().start(), options);
  await context.start({ engines: [engine.url], settings: { tokenIn } });
}

type Samples = { samples: { token_ids: number[]; loss_mask: number[]; logprobs: number[]; policy_versions: unknown[]; call_ids: string[] }[] };
const samplesOf = async (trialId: string): Promise<Samples['samples']> =>
  ((await (await context.admin('GET', `/sessions/${trialId}/samples`)).json()) as Samples).samples;

const ask = (text: string) => ({ role: 'user', content: text });

describe.each([{ parses: true }, { parses: false }])('an engine that takes tool calls out of the text: $parses', (options) => {
  test.each([false, true])('the second turn\'s prompt starts with other ids than were sampled (stream: %s)', async (stream) => {
    await start(options);
    const trial = await context.trial();
    engine.script = [{ text: 'hello <|im_end|> there' }, { text: 'cut sho', ends: false }, { text: 'bye' }];
    const messages: unknown[] = [ask('one')];
    for (const next of ['two', 'three']) {
      const reply = await trial.chat({ messages, stream });
      const text = stream
        ? (await readStream(reply)).chunks.map((chunk) => chunk.choices?.[0]?.delta?.content ?? '').join('')
        : (await reply.json()).choices[0].message.content;
      messages.push({ role: 'assistant', content: text, refusal: null }, ask(next));
    }
    await (await trial.chat({ messages, stream })).text();
    const [first, second, third] = engine.generated;
    expect(second?.prompt.slice(0, (first?.prompt.length ?? 0) + (first?.completion.length ?? 0))).toEqual([...(first?.prompt ?? []), ...(first?.completion ?? [])]);
    expect(third?.prompt.slice(0, second?.prompt.length)).toEqual(second?.prompt);
    // What was cut by its length is closed before what follows.
    expect(third?.prompt[(second?.prompt.length ?? 0) + (second?.completion.length ?? 0)]).toBe(END);
    const calls = await trial.calls();
    expect(calls.map((call) => call.continuation)).toEqual([null, 'clean', 'clean']);
    expect(calls[1]?.parentId).toBe(calls[0]?.id);
    const samples = await samplesOf(trial.id);
    expect(samples).toHaveLength(1);
    expect(samples[0]?.loss_mask.filter(Boolean)).toHaveLength(engine.generated.reduce((sum, { completion }) => sum + completion.length, 0));
  });

  test('the record differs from what the engine was given and gave, or from what the agent saw', async () => {
    await start(options);
    for (let seed = 1; seed <= 30; seed++) {
      engine.generated.length = 0;
      const trial = await context.trial();
      const steps = await converse(seed, { chat: (body) => trial.chat(body), say: (line) => (engine.script = [line]) });
      await check(trial.id, steps, await trial.calls(), `seed ${seed}`);
    }
  }, 60_000);
});

async function check(trialId: string, steps: Step[], calls: Awaited<ReturnType<Awaited<ReturnType<typeof context.trial>>['calls']>>, name: string): Promise<void> {
  const recorded = calls.map((call) => ({ prompt: [...(call.promptTokenIds ?? [])], completion: [...(call.completionTokenIds ?? [])] }));
  expect(recorded, name).toEqual(engine.generated.map(({ prompt, completion }) => ({ prompt, completion })));
  for (const [i, { text, tools }] of steps.entries()) if (!tools) expect(decode(recorded[i]?.completion ?? []), name).toBe(text);
  const continued = steps.filter((step) => step.continues);
  expect(calls.filter((call) => call.continuation === 'clean'), name).toHaveLength(continued.length);
  expect(calls.filter((call) => call.continuation === 'realigned'), name).toEqual([]);
  const samples = await samplesOf(trialId);
  const trained = new Map<string, number>();
  for (const { token_ids, loss_mask, logprobs, policy_versions, call_ids } of samples) {
    expect([loss_mask.length, logprobs.length, policy_versions.length], name).toEqual([token_ids.length, token_ids.length, token_ids.length]);
    const leaf = recorded[calls.findIndex((call) => call.id === call_ids.at(-1))];
    expect(token_ids, name).toEqual([...(leaf?.prompt ?? []), ...(leaf?.completion ?? [])]);
    for (const id of call_ids) {
      const call = recorded[calls.findIndex((each) => each.id === id)];
      const from = call?.prompt.length ?? 0;
      const own = token_ids.slice(from, from + (call?.completion.length ?? 0));
      expect(own, name).toEqual(call?.completion);
      if (loss_mask[from] === 1) trained.set(id, (trained.get(id) ?? 0) + 1);
    }
  }
  expect([...trained.values()].every((times) => times === 1) && trained.size === calls.length, name).toBe(true);
  const masked = samples.reduce((sum, sample) => sum + sample.loss_mask.filter(Boolean).length, 0);
  expect(masked, name).toBe(recorded.reduce((sum, { completion }) => sum + completion.length, 0));
}

test('an engine without the routes is asked for them at each call, or its drift goes uncounted', async () => {
  await start({ scaleOut: false });
  const trial = await context.trial();
  engine.script = [{ text: 'hello there' }, { text: 'bye' }, { text: 'summary' }];
  const first = await (await trial.chat({ messages: [ask('one')] })).json();
  const messages = [ask('one'), first.choices[0].message, ask('two')];
  await trial.chat({ messages });
  await trial.chat({ messages: [ask('a summary of it all')] });
  const calls = await trial.calls();
  expect(calls.map((call) => call.continuation)).toEqual([null, 'realigned', 'forked']);
  expect((await samplesOf(trial.id)).map((sample) => sample.call_ids)).toEqual(calls.map((call) => [call.id]));
});

test('a second gateway process does not know what the first has recorded', async () => {
  await start();
  const trial = await context.trial();
  engine.script = [{ text: 'hello there' }, { text: 'bye' }];
  const first = await (await trial.chat({ messages: [ask('one')] })).json();
  await context.gateway.close();
  await context.start({ engines: [engine.url] });
  await trial.chat({ messages: [ask('one'), first.choices[0].message, ask('two')] }, {});
  const reply = await context.chat(trial.id, trial.key, { messages: [ask('one'), first.choices[0].message, ask('two')] });
  expect(reply.status).toBe(200);
  expect((await trial.calls()).map((call) => call.continuation)).toEqual([null, 'clean', 'clean']);
});
