import { z } from 'zod';
import { weightVersionIn, WEIGHT_ROUTES } from '../../../core/weight-info.ts';
import { adaptMessages } from '../adapt-messages.ts';
import { post } from '../answer.ts';
import { ROUTES } from '../completion.ts';
import type { Engine } from '../engine.ts';
import { answerByIds } from './answer-by-ids.ts';
import { countTokens } from './count-tokens.ts';
import { engineBody } from './engine-body.ts';
import { GRAMMARS, SAMPLING } from './fields.ts';
import { answersAt, getJson } from '../get-json.ts';
import { withinContext } from '../room.ts';
import { readLoad } from './load.ts';
import { readLogprobsMode } from './logprobs-mode.ts';
import { ordinaryAnswer } from './ordinary-answer.ts';
import { isRelayedToVllm, weightsFolderIn } from './relayed-routes.ts';
import { forMask, sampledFrom } from './sampled-from.ts';
import { takesOf } from './takes.ts';
import { readTraits } from './traits.ts';

const modelList = z.object({ data: z.array(z.looseObject({ id: z.string() })) });
const numberOf = (value: unknown): number | null => (typeof value === 'number' ? value : null);

/** vLLM. Its scale-out routes, where it has them, render a request to ids, generate from ids and turn ids into a reply. */
export const vllm: Engine = {
  name: 'vllm',
  whyUntrainable: null,
  fields: { grammars: GRAMMARS, sampling: SAMPLING },

  weightVersion: async (connection, signal) => weightVersionIn(await getJson(connection, WEIGHT_ROUTES.vllm, signal)),
  models: async (connection, signal) => {
    const list = modelList.safeParse(await getJson(connection, '/v1/models', signal)).data?.data ?? [];
    return list.map(({ id, created, max_model_len, root }) => ({
      id,
      created: numberOf(created),
      contextLength: numberOf(max_model_len),
      root: String(root),
    }));
  },
  load: readLoad,
  isAlive: answersAt('/health'),
  logprobsMode: readLogprobsMode,
  traits: readTraits,

  inForce: (sampled, traits) => (traits?.maskedTopK ? forMask(sampled) : sampled),
  sampledFrom,

  prepare: async ({ replica, weightVersion, model }, request) => {
    const { max_tokens: limit, ...body } = engineBody(request, { model, weightVersion });
    const max = typeof limit === 'number' ? { max_tokens: await withinContext(replica, limit) } : {};
    return adaptMessages(replica, { ...body, ...max }, takesOf(replica.connection, model));
  },
  generate: async (exchange, request, body) =>
    (await answerByIds(exchange, request, body)) ??
    ordinaryAnswer(exchange, await post(exchange, ROUTES[request.kind], body), request.wants),
  countTokens,
  isRelayed: isRelayedToVllm,
  weightsFolderIn,
};
