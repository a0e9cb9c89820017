import { z } from 'zod';
import { choicesOf } from '../../../store/calls/choices.ts';
import { Failure } from '../../failure.ts';
import type { JsonObject } from '../../json.ts';
import { isResultWithMedia, withMediaAfterResults } from '../adapt-messages.ts';
import { chunksOf, objectIn, post, wholeOf } from '../answer.ts';
import { EMPTY_RESULT, NOTHING_SAMPLED } from '../call-result.ts';
import { completionCount, hide, ROUTES, withUsage, type Wants } from '../completion.ts';
import type { Engine, ObjectChunk, WholeReply } from '../engine.ts';
import { answersAt, getJson } from '../get-json.ts';

const MODELS = '/v1/models';

const modelList = z.object({
  data: z.array(z.looseObject({ id: z.string(), created: z.number().nullish().catch(null) })),
});

/**
 * Any server of OpenAI's completions. It gets only OpenAI's own fields and what the agent or the trial's settings add to them. Its calls
 * are answered and recorded with their text. It is the shortest engine there can be, and so the example for the next one.
 */
export const openai: Engine = {
  name: 'openai',
  whyUntrainable: 'servers of this kind return no token ids',
  fields: { grammars: new Map(), sampling: [] },

  weightVersion: async () => null,
  models: async (connection, signal) => {
    const list = modelList.safeParse(await getJson(connection, MODELS, signal)).data?.data ?? [];
    return list.map(({ id, created }) => ({ id, created: created ?? null, contextLength: null, root: id }));
  },
  load: async () => null,
  isAlive: answersAt(MODELS),
  logprobsMode: async () => null,
  traits: async () => null,

  inForce: (sampled, _traits, _constrained, filledIn) => withoutFilledIn(sampled, filledIn),
  sampledFrom: () => 'unknown',

  prepare: async ({ model }, { body, stream }) => ({
    body: { ...withImagesOfUsers(body), ...(model === null ? {} : { model }), ...(stream ? withUsage(body) : {}) },
    leftOut: [],
  }),
  generate: async (exchange, { kind, wants }, body) => {
    const reply = await post(exchange, ROUTES[kind], body);
    const chunkIn = (data: string) => {
      const chunk = objectIn(data);
      return chunk instanceof Failure ? chunk : readChunk(chunk, wants);
    };
    return {
      whole: async () => readWhole(await wholeOf(exchange, reply), wants),
      chunks: () => chunksOf(exchange, reply, chunkIn),
      sampled: () => EMPTY_RESULT,
    };
  },
  countTokens: async () => {
    throw new Failure(501, 'not_supported', 'this engine does not count tokens', {
      retryable: false,
      fault: 'request',
    });
  },
  isRelayed: (method, path) => (method === 'GET' ? path === MODELS : Object.values(ROUTES).includes(path)),
  weightsFolderIn: () => null,
};

/** The settings of sampling that OpenAI does not have. */
const LACKING = ['top_k', 'min_p', 'repetition_penalty'];

/** Such a server may refuse a setting that it does not know, also one that changes nothing, so it gets only those that somebody chose. */
function withoutFilledIn(sampled: JsonObject, filledIn: readonly string[]): JsonObject {
  const rest = { ...sampled };
  for (const name of LACKING) if (filledIn.includes(name)) delete rest[name];
  return rest;
}

/** OpenAI's tool messages hold only text. */
const withImagesOfUsers = (body: JsonObject): JsonObject =>
  Array.isArray(body.messages) && body.messages.some(isResultWithMedia)
    ? { ...body, messages: withMediaAfterResults(body.messages) }
    : body;

function readWhole(body: JsonObject, wants: Wants): WholeReply {
  const shown = hide(body, wants);
  const choices = choicesOf(body).map(({ finish_reason: finish }) => ({
    ...NOTHING_SAMPLED,
    finishReason: typeof finish === 'string' ? finish : null,
  }));
  return { shown, result: { prompt: null, choices, counted: completionCount(body.usage), reply: shown } };
}

const readChunk = (chunk: JsonObject, wants: Wants): ObjectChunk => ({
  shown: hide(chunk, wants),
  prompt: null,
  usage: chunk.usage,
  sampled: choicesOf(chunk).map(() => NOTHING_SAMPLED),
});
