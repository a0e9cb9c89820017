import { expect, test } from 'vitest';
import { z } from 'zod';
import { UndiciConnection } from '../../../gateway/runtimes/node/engine-connection.ts';
import { onToy, observeTrial, exactTrial } from '../scenarios/exact-trial.ts';
import { Replies, type TurnMatcher } from '../scenarios/generated.ts';
import { ADMIN_KEY } from '../harness/gateways.ts';
import { ListeningProxy } from '../fakes/listening-proxy.ts';
import { recordFaults, type Observation } from './record-faults.ts';
import { HALVES } from '../fakes/toy-engine.ts';
import { useTokenGateways } from '../harness/token-gateway.ts';

const context = useTokenGateways();
const numbers = z.array(z.number());
const turn = z.looseObject({
  completion_text: z.string(),
  tool_calls: z
    .array(z.looseObject({ function: z.looseObject({ name: z.string(), arguments: z.string() }) }))
    .nullable(),
  prompt_token_ids: numbers,
  completion_token_ids: numbers,
  completion_logprobs: numbers,
  version_spans: z.array(z.looseObject({ version: z.number() })).nullable(),
});
const recorded = z.looseObject({ turns: z.array(turn) });
const made = z.looseObject({
  samples: z.array(z.looseObject({ logprobs: numbers, policy_versions: z.array(z.number().nullable()) })),
});
/** An observed trial with its record, its samples, and the index of a turn that calls a tool after some text. */
type Planting = {
  steps: Observation['steps'];
  turns: z.output<typeof turn>[];
  samples: z.output<typeof made>['samples'];
  calling: number;
};

const call = ({ turns, steps, calling }: Planting) => [
  turns[calling]?.tool_calls?.[0]?.function ?? { name: '', arguments: '' },
  steps[calling]?.calls[0]?.function ?? { name: '', arguments: '' },
];
const last = <T>(list: T[] | undefined, value: T): void => void list?.splice(-1, 1, value);
const FAULTS: Record<string, (planting: Planting) => void> = {
  'the record has other arguments than the agent saw': (all) =>
    call(all)
      .slice(0, 1)
      .forEach((said) => (said.arguments = '{}')),
  'the agent and the record have other arguments than the ids say': (all) =>
    call(all).forEach((said) => (said.arguments = '{"file":"another"}')),
  'the record names another tool': (all) =>
    call(all)
      .slice(0, 1)
      .forEach((said) => (said.name = 'rm')),
  'a call of a tool was lost': ({ turns, steps, calling }) =>
    void [turns[calling]?.tool_calls?.pop(), steps[calling]?.calls.pop()],
  'the text before a call was lost in the record': ({ turns, calling }) =>
    Object.assign(turns[calling] ?? {}, { completion_text: '' }),
  'the text before a call was lost on its way': ({ turns, steps, calling }) =>
    void [
      Object.assign(turns[calling] ?? {}, { completion_text: '' }),
      Object.assign(steps[calling] ?? {}, { text: '' }),
    ],
  'a sampled id is another': ({ turns }) => last(turns[0]?.completion_token_ids, 77),
  "a prompt's id is another": ({ turns }) => last(turns[0]?.prompt_token_ids, 77),
  "a turn's log-probability is another": ({ turns }) => last(turns[0]?.completion_logprobs, -9),
  "a sample's log-probability is another": ({ samples }) => last(samples[0]?.logprobs, -9),
  "a turn's version is another": ({ turns }) => Object.assign(turns[0]?.version_spans?.[0] ?? {}, { version: 7 }),
  "a sample's version is another": ({ samples }) => last(samples[0]?.policy_versions, 7),
  'a sample has a log-probability where it does not train': ({ samples }) => samples[0]?.logprobs.splice(0, 1, -9),
};

test('the record oracle finds each fault that is planted in a record and in its samples', async () => {
  await context.serve({ weightVersion: 'run@1', spans: HALVES });
  await context.givePool('run', 'run@1');
  const seen = await observeTrial({ ...ofToy(), opening: { run_id: 'run' } }, 'planted', { seed: 1, steps: 20 });
  expect(await recordFaults(seen)).toEqual([]);
  const calling = seen.steps.findIndex(({ text, calls }) => text !== '' && calls.length > 0);
  expect(calling).toBeGreaterThan(0);
  for (const [name, plant] of Object.entries(FAULTS)) {
    const { steps, session, samples } = structuredClone({
      steps: seen.steps,
      session: recorded.parse(seen.session),
      samples: made.parse(seen.samples),
    });
    plant({ steps, turns: session.turns, samples: samples.samples, calling });
    expect(await recordFaults({ ...seen, steps, session, samples }), name).not.toEqual([]);
  }
});

const ofToy = () => onToy({ url: context.gateway.url, adminKey: ADMIN_KEY }, context.toy);

test.each(['/v1/chat/completions', '/v1/chat/completions/render'])(
  'the record oracle finds a message of the agent that never reached the engine (%s)',
  async (lossy) => {
    await context.serve();
    context.toy.before = ({ path, body }) => {
      if (path === lossy && body.add_generation_prompt !== false && body.messages.length > 1) body.messages.splice(-1);
    };
    expect((await exactTrial(ofToy(), `lossy-${lossy.length}`, { seed: 2 })).faults).toContainEqual(
      expect.stringContaining('has another prompt than its agent'),
    );
  },
);

test.each([true, false])(
  'the listening proxy hands the record oracle each reply as the engine gave it, and the oracle finds a changed token (parses: %s)',
  async (parses) => {
    await context.serve({ parses });
    const engine = new UndiciConnection(context.toy.url);
    const replies = new Replies();
    const proxy = await new ListeningProxy(engine, (generated) => replies.add(generated)).start();
    await context.restart({ engines: [proxy.url] });
    const place = { ...ofToy(), matches: () => replies.take };
    const conversations = Array.from({ length: 4 }, (_, i) =>
      exactTrial(place, `proxied-${parses}-${i}`, { seed: i + 1 }),
    );
    expect((await Promise.all(conversations)).flatMap(({ faults }) => faults)).toEqual([]);
    expect(replies.left).toBe(0);
    const swapped: TurnMatcher = (said, i) => replies.take({ ...said, completion: said.completion.with(0, 77) }, i);
    expect((await exactTrial({ ...place, matches: () => swapped }, `swapped-${parses}`, { seed: 5 })).faults).toContain(
      'seed 5: turn 0 differs from what the engine was given or gave',
    );
    await proxy.stop();
    await engine.close();
  },
);
