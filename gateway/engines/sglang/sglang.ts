import { z } from 'zod';
import { weightVersionIn, WEIGHT_ROUTES } from '../../../core/weight-info.ts';
import { adaptMessages } from '../adapt-messages.ts';
import type { Engine } from '../engine.ts';
import { answersAt, getJson } from '../get-json.ts';
import { countBy, takesBy } from '../token-route.ts';
import { renderedFields, sglangBody } from './body.ts';
import { GRAMMARS, SAMPLING } from './fields.ts';
import { generate } from './generate.ts';
import { readLoad } from './load.ts';
import { readLogprobsMode } from './logprobs-mode.ts';
import { isRelayedToSglang, weightsFolderIn } from './relayed-routes.ts';
import { boundedForMask } from '../sampled-from.ts';
import { sampledFrom } from './sampled-from.ts';
import { readTraits } from './traits.ts';

const TOKENIZE = '/tokenize';

const serverInfo = z.object({ model_path: z.string(), served_model_name: z.string() });
const modelList = z.object({
  data: z.array(
    z.object({
      id: z.string(),
      root: z.string(),
      /** An adapter's base. */
      parent: z.string().nullish(),
      created: z.number(),
      max_model_len: z.number().nullable(),
    }),
  ),
});

/**
 * SGLang. Its chat route takes a prompt of ids and returns ids with whole replies; its route for ids also streams them. Its health route
 * waits for the scheduler, which is silent during a pause, so `/model_info` is asked in its place.
 */
export const sglang: Engine = {
  name: 'sglang',
  whyUntrainable: null,
  fields: { grammars: GRAMMARS, sampling: SAMPLING },

  weightVersion: async (connection, signal) => weightVersionIn(await getJson(connection, WEIGHT_ROUTES.sglang, signal)),
  models: async (connection, signal) => {
    const [info, list] = await Promise.all([
      getJson(connection, '/server_info', signal),
      getJson(connection, '/v1/models', signal),
    ]);
    // After new weights the list has their path as the name. The settings of its start keep the name that agents know.
    const started = serverInfo.safeParse(info).data;
    const [card, ...others] = modelList.safeParse(list).data?.data ?? [];
    if (!started || !card) return [];
    const { created, max_model_len: contextLength } = card;
    const adapters = others.filter(({ parent }) => typeof parent === 'string');
    return [
      { id: started.served_model_name, root: started.model_path, created, contextLength },
      ...adapters.map(({ id, root, created: at }) => ({ id, root, created: at, contextLength })),
    ];
  },
  load: readLoad,
  isAlive: answersAt(WEIGHT_ROUTES.sglang),
  logprobsMode: (connection, _model, signal) => readLogprobsMode(connection, signal),
  traits: (connection, _model, signal) => readTraits(connection, signal),

  inForce: (sampled, traits, isConstrained) =>
    traits?.maskedTopK && sampledFrom(sampled, 'processed_logprobs', isConstrained) === 'mask'
      ? boundedForMask(sampled)
      : sampled,
  sampledFrom,

  prepare: (lease, request) =>
    adaptMessages(lease.replica, sglangBody(request, lease), takesBy(lease.replica.connection, TOKENIZE)),
  generate,
  countTokens: async ({ replica }, prompt, signal) => {
    const { body } = await adaptMessages(replica, renderedFields(prompt), takesBy(replica.connection, TOKENIZE));
    return countBy(replica.connection, TOKENIZE, body, signal);
  },
  isRelayed: isRelayedToSglang,
  weightsFolderIn,
};
