import { Failure } from '../../failure.ts';
import { isObject, parseObject, type JsonObject } from '../../json.ts';
import { EMPTY_RESULT, NOTHING_SAMPLED, type ChoiceResult } from '../call-result.ts';
import { asksForEachUsage, hide, openingChunks, recordedReply, usageBefore } from '../completion.ts';
import type { EngineReply } from '../connection.ts';
import type { Answer, GenerationRequest, ObjectChunk } from '../engine.ts';
import { badReply } from '../engine-failed.ts';
import { chunksOf, post } from '../answer.ts';
import type { Exchange } from '../exchange.ts';
import { expertsIn, idsIn, spansIn } from '../read-sampled.ts';
import { recordedFields, samplingParams } from './body.ts';
import { countIn, endingIn, logprobsIn, metaOf, resultOf, sampledLogprobs, samplingMaskIn } from './output.ts';
import { messageIn, refused, rejection } from './rejection.ts';
import { shownLogprobs, usageOf } from './shape.ts';

export type FromIds = {
  body: JsonObject;
  /** The prompt, or a text that the engine tokenizes. */
  prompt: number[] | string;
  maxNewTokens: number | null;
  /** The prompt's first token whose experts are asked for. */
  expertsFrom: number;
};

/** Generates by `/generate`, whose replies have ids, log-probabilities and versions also in streams. */
export async function fromIds(
  exchange: Exchange,
  request: GenerationRequest,
  { body, prompt, maxNewTokens, expertsFrom }: FromIds,
): Promise<Answer> {
  const { stream, wants, kind } = request;
  const asked = kind === 'chat' ? request.body.top_logprobs : request.body.logprobs;
  const reply = await post(
    exchange,
    '/generate',
    {
      ...(typeof prompt === 'string' ? { text: prompt } : { input_ids: prompt }),
      sampling_params: samplingParams(body, maxNewTokens),
      stream,
      return_logprob: true,
      logprob_start_len: -1,
      top_logprobs_num: wants.logprobs && typeof asked === 'number' ? asked : 0,
      return_text_in_logprobs: wants.logprobs,
      return_prompt_token_ids: true,
      cache_salt: body.cache_salt,
      lora_path: body.lora_path,
      ...recordedFields(body, request.traits, expertsFrom),
    },
    refused,
  );
  const reading = new Reading(request, exchange.lease.model, expertsFrom);
  return {
    whole: async () => reading.whole(await outputsOf(exchange, reply)),
    chunks: () => reading.chunks(chunksOf(exchange, reply, eventIn)),
    sampled: () => EMPTY_RESULT,
  };
}

/** Several replies come as a list. */
async function outputsOf(exchange: Exchange, reply: EngineReply): Promise<JsonObject[]> {
  const text = await exchange.readText(reply.body);
  const { outputs } = parseObject(`{"outputs":${text}}`) ?? {};
  const list: unknown[] = [outputs].flat();
  if (!list.every(isObject)) throw badReply(`is not a JSON object: ${text.slice(0, 200)}`);
  return list;
}

/** Returns an event's object. A stream that is refused has 200 as its status, and the error as its first event. */
function eventIn(data: string): JsonObject | Failure {
  const event = parseObject(data);
  if (!event) return badReply(`has an event that is not a JSON object: ${data.slice(0, 200)}`);
  if (event.error === undefined) return event;
  const code = isObject(event.error) && typeof event.error.code === 'number' ? event.error.code : 500;
  return rejection(code, messageIn(event) ?? 'without a reason');
}

/** The part of one reply that was read. */
type Read = { ids: number; logprobs: number; text: number; tokens: number; ended: boolean };

/** Turns the replies of `/generate` into completions. */
class Reading {
  readonly #request: GenerationRequest;
  readonly #model: string | null;
  readonly #created = Math.floor(Date.now() / 1000);
  readonly #read: Read[] = [];
  readonly #expertsFrom: number;

  constructor(request: GenerationRequest, model: string | null, expertsFrom: number) {
    this.#request = request;
    this.#model = model;
    this.#expertsFrom = expertsFrom;
  }

  whole(outputs: JsonObject[]) {
    const { wants, kind } = this.#request;
    const read = outputs.map((output) => {
      const meta = metaOf(output);
      const ending = endingIn(meta);
      const result = resultOf(meta, output.output_ids, ending?.reason ?? null, this.#expertsFrom);
      return { meta, ending, text: textIn(output), result };
    });
    const prompt = idsIn(outputs[0]?.prompt_token_ids);
    const choices = read.map(({ meta, ending, text, result }, index) => ({
      index,
      ...(kind === 'chat' ? { message: { role: 'assistant', content: text } } : { text }),
      ...(wants.logprobs ? { logprobs: shownLogprobs(kind, logprobsIn(meta), 0) } : {}),
      finish_reason: ending?.reason ?? null,
      stop_reason: ending?.stop ?? null,
      token_ids: result.completion,
      ...(kind === 'text' ? { prompt_token_ids: prompt } : {}),
    }));
    const counted = read.reduce((sum, { meta }) => sum + countIn(meta), 0);
    const first = read[0]?.meta ?? {};
    const body = {
      ...this.#head(first, false),
      choices,
      usage: usageOf(prompt?.length ?? 0, counted, first.cached_tokens),
      ...(kind === 'chat' ? { prompt_token_ids: prompt } : {}),
    };
    const shown = hide(body, wants);
    return {
      shown,
      result: {
        prompt,
        choices: read.map(({ result }) => result),
        counted,
        reply: recordedReply(shown, wants),
      },
    };
  }

  async *chunks(events: AsyncIterable<JsonObject[]>): AsyncGenerator<ObjectChunk[]> {
    const { n } = this.#request;
    let prompt: number[] | null = null;
    let cached: unknown;
    for await (const list of events) {
      const chunks: ObjectChunk[] = [];
      for (const event of list) {
        const meta = metaOf(event);
        if (!prompt) {
          prompt = idsIn(event.prompt_token_ids);
          if (!prompt) throw badReply("does not have the prompt's ids");
          cached = meta.cached_tokens;
          chunks.push(...this.#openings(meta, prompt));
        }
        chunks.push(this.#chunk(event, meta, prompt.length));
      }
      const isOver = this.#read.filter((each) => each?.ended).length === n;
      if (isOver) chunks.push(this.#usage(metaOf(list.at(-1) ?? {}), prompt?.length ?? 0, cached));
      yield chunks;
      if (isOver) return;
    }
  }

  #chunk(event: JsonObject, meta: JsonObject, prompt: number): ObjectChunk {
    const { kind, wants, n } = this.#request;
    const index = typeof event.index === 'number' ? event.index : 0;
    if (!Number.isInteger(index) || index < 0 || index >= n)
      throw badReply(`has a choice that is none of the ${n} asked for`);
    const ending = endingIn(meta);
    const before = (this.#read[index] ??= { ids: 0, logprobs: 0, text: 0, tokens: 0, ended: false });
    const ids = idsIn(event.output_ids);
    const text = textIn(event);
    const entries = Array.isArray(meta.output_token_logprobs) ? meta.output_token_logprobs.length : 0;
    // An event has all of the reply, or only what is new. The engine's own count tells which.
    const hasAll = (ids?.length ?? 0) >= countIn(meta);
    const [idsFrom, logprobsFrom, textFrom] = hasAll ? [before.ids, before.logprobs, before.text] : [0, 0, 0];
    const fresh = logprobsIn(meta, logprobsFrom);
    const said = text.slice(textFrom);
    const result: Omit<ChoiceResult, 'finishReason'> = {
      completion: ids && ids.slice(idsFrom),
      logprobs: sampledLogprobs(meta, fresh, logprobsFrom),
      mask: samplingMaskIn(meta, logprobsFrom),
      versions: spansIn(meta.weight_versions),
      experts: expertsIn(meta.routed_experts, 'int32', this.#expertsFrom),
    };
    const choice = {
      index,
      ...(kind === 'chat' ? { delta: { content: said } } : { text: said }),
      ...(wants.logprobs ? { logprobs: shownLogprobs(kind, fresh, before.text) } : {}),
      finish_reason: ending?.reason ?? null,
      stop_reason: ending?.stop ?? null,
      token_ids: result.completion,
    };
    before.ids += result.completion?.length ?? 0;
    before.logprobs += entries - logprobsFrom;
    before.text += said.length;
    before.tokens = countIn(meta);
    before.ended = ending !== null;
    const usage = asksForEachUsage(this.#request.body)
      ? {
          usage: usageOf(
            prompt,
            this.#read.reduce((sum, { tokens }) => sum + tokens, 0),
            meta.cached_tokens,
          ),
        }
      : {};
    return {
      shown: hide({ ...this.#head(meta, true), choices: [choice], ...usage }, wants),
      prompt: null,
      usage: undefined,
      sampled: [result],
    };
  }

  #openings(meta: JsonObject, prompt: number[]): ObjectChunk[] {
    const { kind, wants, n } = this.#request;
    const counts = asksForEachUsage(this.#request.body)
      ? { usage: usageBefore(usageOf(prompt.length, 0, meta.cached_tokens)) }
      : {};
    const head = { ...this.#head(meta, true), ...counts };
    if (kind === 'chat')
      return openingChunks(head, n, prompt).map((chunk, i) => ({
        shown: hide(chunk, wants),
        prompt: i === 0 ? prompt : null,
        usage: undefined,
        sampled: [NOTHING_SAMPLED],
      }));
    const choices = Array.from({ length: n }, (_, index) => ({
      index,
      text: '',
      finish_reason: null,
      prompt_token_ids: prompt,
    }));
    return [
      {
        shown: hide({ ...head, choices }, wants),
        prompt,
        usage: undefined,
        sampled: choices.map(() => NOTHING_SAMPLED),
      },
    ];
  }

  #usage(meta: JsonObject, prompt: number, cached: unknown): ObjectChunk {
    const usage = usageOf(
      prompt,
      this.#read.reduce((sum, { tokens }) => sum + tokens, 0),
      cached,
    );
    const shown = hide({ ...this.#head(meta, true), choices: [], usage }, this.#request.wants);
    return { shown, prompt: null, usage, sampled: [] };
  }

  #head({ id }: JsonObject, isChunk: boolean) {
    const object = this.#request.kind === 'text' ? 'text_completion' : `chat.completion${isChunk ? '.chunk' : ''}`;
    return { id, object, created: this.#created, model: this.#model };
  }
}

function textIn({ text }: JsonObject): string {
  if (typeof text !== 'string') throw badReply('has no text');
  return text;
}
