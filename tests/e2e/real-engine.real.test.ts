import { expect, test } from 'vitest';
import { z } from 'zod';
import { askTeacher } from '../../activities/batch/ask-teacher.ts';
import { withTemporaryStack } from '../support/harness/temporary-deployment.ts';
import { exactTrial, exactTrialsIn, type Place } from '../support/scenarios/exact-trial.ts';
import { withVllm } from '../support/harness/own-vllm.ts';
import { gatewayBeforeVllm } from '../support/harness/gateway-before-vllm.ts';
import { trialOverHttp } from '../support/harness/trial-over-http.ts';
import { TestPostgres } from '../support/harness/postgres.ts';

test('a conversation with a real engine does not drift, and its record equals what the agent saw', async ({
  signal,
}) => {
  // This engine has no parser. The benchmark and the test below compare with what the engine was given and gave.
  const faults = await withTemporaryStack(
    ({ plan: { gatewayUrls, adminKey, engines } }) =>
      exactTrialsIn({ gatewayUrl: gatewayUrls[0] ?? '', adminKey, engines }, { trials: 16, steps: 8, signal }),
    signal,
    ['postgres', 'vllm', 'gateway'],
  );
  expect(faults).toEqual([]);
});

const trained = z.object({
  samples: z.array(
    z.object({ token_ids: z.array(z.int()), loss_mask: z.array(z.int()), logprobs: z.array(z.number()) }),
  ),
});

/** A model of so few layers fills a call with spaces for long. */
const LONG_ENOUGH = 400;

const LS = {
  type: 'function',
  function: { name: 'ls', strict: true, parameters: { type: 'object', properties: { path: { type: 'string' } } } },
};
const SCHEMA = {
  type: 'json_schema',
  json_schema: { name: 'seen', schema: { type: 'object', properties: { name: { type: 'string' } } } },
};

/** Returns how two turns of a trial are recorded: one forces a tool, the next asks for a schema. */
async function constrainedTurns(gateway: Place['gateway'], decoding: 'enforce' | 'hint') {
  const trial = await trialOverHttp(gateway, `constrained-${decoding}`, {
    sampling: { temperature: 1, max_tokens: 16, constrained_decoding: decoding },
  });
  const messages: unknown[] = [{ role: 'user', content: 'look' }];
  for (const fields of [{ tool_choice: 'required' }, { response_format: SCHEMA }]) {
    const { choices } = z
      .object({ choices: z.array(z.object({ message: z.looseObject({ content: z.string().nullish() }) })) })
      .parse(await (await trial.chat({ messages, tools: [LS], ...fields })).json());
    messages.push(
      { role: 'assistant', content: choices[0]?.message.content ?? '', tool_calls: choices[0]?.message.tool_calls },
      { role: 'user', content: 'go on' },
    );
  }
  const turn = z.object({
    untrainable: z.string().nullable(),
    sampling: z.object({ constraints: z.array(z.string()) }),
  });
  return z
    .object({ turns: z.array(turn) })
    .parse(await trial.session())
    .turns.map(({ untrainable, sampling }) => [untrainable, ...sampling.constraints]);
}

test('a real engine’s tool calls are recorded as it gave them, and later turns do not drift from them', async ({
  signal,
}) => {
  const postgres = await TestPostgres.create();
  try {
    await withVllm(
      async (url) => {
        const place = await gatewayBeforeVllm(url, postgres.url, signal);
        const conversations = Array.from({ length: 8 }, (_, i) =>
          exactTrial({ ...place, forcing: { ...place.forcing, max_tokens: LONG_ENOUGH } }, `calling-${i}`, {
            seed: i + 1,
            steps: 4,
          }),
        );
        const seen = await Promise.all(conversations);
        expect([...seen.flatMap(({ faults }) => faults), ...place.unmatched()]).toEqual([]);
        // vLLM constrains strict tools by a grammar on its own. With hints nothing is constrained.
        expect(await constrainedTurns(place.gateway, 'enforce')).toEqual([
          ['sampling_not_reproducible', 'tool_choice'],
          ['sampling_not_reproducible', 'strict_tools', 'response_format'],
        ]);
        expect(await constrainedTurns(place.gateway, 'hint')).toEqual([
          [null, 'tool_choice'],
          [null, 'strict_tools', 'response_format'],
        ]);
        // The engine is its own teacher here, so both give a token the same probability. Only batches of other shapes round bfloat16
        // differently.
        const own = seen
          .flatMap((each) => trained.parse(each.samples).samples)
          .filter(({ loss_mask }) => loss_mask.includes(1));
        const asked = own.map(({ token_ids, loss_mask }) => ({
          tokenIds: Int32Array.from(token_ids),
          lossMask: Int8Array.from(loss_mask),
          samplingMask: token_ids.map(() => null),
        }));
        const answers = await askTeacher({ url: `${url}/v1`, model: 'policy' }, asked, signal);
        const gaps = own.flatMap(({ loss_mask, logprobs }, i) =>
          logprobs.flatMap((logprob, at) =>
            loss_mask[at] === 1 ? [Math.abs((answers[i]?.[at] ?? Infinity) - logprob)] : [],
          ),
        );
        expect(gaps.length).toBeGreaterThan(50);
        expect(gaps.reduce((sum, gap) => sum + gap, 0) / gaps.length).toBeLessThan(0.05);
        await place.close();
        const steps = seen.flatMap((each) =>
          each.steps.map(({ calls, after }) => ({
            calls: calls.length,
            before: each.steps[after?.step ?? -1]?.calls.length ?? 0,
          })),
        );
        expect(steps.filter(({ calls }) => calls > 0)).not.toHaveLength(0);
        expect(steps.filter(({ before }) => before > 0)).not.toHaveLength(0);
      },
      signal,
      { layers: 4 },
    );
  } finally {
    await postgres.close();
  }
});
