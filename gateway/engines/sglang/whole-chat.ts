import { choicesOf } from '../../../store/calls/choices.ts';
import { isObject, type JsonObject } from '../../json.ts';
import { post, wholeOf } from '../answer.ts';
import { EMPTY_RESULT, NOTHING_SAMPLED, type ChoiceResult } from '../call-result.ts';
import { asksForEachUsage, completionCount, hide, wholeAsChunks, recordedReply, ROUTES } from '../completion.ts';
import type { Answer, GenerationRequest, ObjectChunk } from '../engine.ts';
import { badReply } from '../engine-failed.ts';
import type { Exchange } from '../exchange.ts';
import { idsIn } from '../read-sampled.ts';
import { endingIn, metaOf, resultOf } from './output.ts';
import { recordedFields } from './body.ts';
import { refused } from './rejection.ts';

/**
 * Answers a chat by SGLang's own route, which parses tools and reasoning and sets grammars. Only its whole replies have ids and versions, so a
 * stream is made of one. `prompt` has the ids of a prompt that is not to be rendered.
 */
export async function wholeChat(
  exchange: Exchange,
  { wants, body: asked, traits }: GenerationRequest,
  body: JsonObject,
  prompt: number[] | null,
  expertsFrom = 0,
): Promise<Answer> {
  const reply = await post(
    exchange,
    ROUTES.chat,
    {
      ...body,
      ...(prompt ? { input_ids: prompt } : {}),
      stream: false,
      logprobs: true,
      top_logprobs: wants.logprobs && typeof asked.top_logprobs === 'number' ? asked.top_logprobs : 0,
      return_token_ids: true,
      return_meta_info: true,
      ...recordedFields(body, traits, expertsFrom),
    },
    refused,
  );
  const read = async () => readChat(await wholeOf(exchange, reply), exchange.lease.model, expertsFrom);
  return {
    whole: async () => {
      const { reply: whole, prompt: ids, choices } = await read();
      const shown = hide(whole, wants);
      return {
        shown,
        result: {
          prompt: ids,
          choices,
          counted: completionCount(whole.usage),
          reply: recordedReply(shown, wants),
        },
      };
    },
    chunks: async function* () {
      const { reply: whole, prompt: ids, choices } = await read();
      yield wholeAsChunks(whole, asksForEachUsage(asked)).map((chunk, i): ObjectChunk => ({
        shown: hide(chunk, wants),
        prompt: i === 0 ? ids : null,
        usage: chunk.usage,
        sampled: choicesOf(chunk).map(({ index, token_ids }) =>
          token_ids ? (choices[Number(index)] ?? NOTHING_SAMPLED) : NOTHING_SAMPLED,
        ),
      }));
    },
    sampled: () => EMPTY_RESULT,
  };
}

type ReadChat = { reply: JsonObject; prompt: number[] | null; choices: ChoiceResult[] };

/** Reads a chat completion, and writes it as other engines do. */
function readChat(whole: JsonObject, model: string | null, expertsFrom: number): ReadChat {
  const { metadata: _, ...reply } = whole;
  const read = choicesOf(reply).map((choice) => {
    const { message, meta_info: __, response_token_ids: ids, prompt_token_ids: prompt, matched_stop, ...rest } = choice;
    if (!isObject(message)) throw badReply('has no message');
    const meta = metaOf(choice);
    // The route names its own reason: `tool_calls` where the reply calls tools.
    endingIn(meta);
    const finishReason = typeof rest.finish_reason === 'string' ? rest.finish_reason : null;
    const result = resultOf(meta, ids, finishReason, expertsFrom);
    const shown = {
      ...rest,
      message: messageOf(message),
      stop_reason: typeof matched_stop === 'string' ? matched_stop : null,
      token_ids: result.completion,
    };
    return { shown, result, prompt: idsIn(prompt) };
  });
  const prompt = read[0]?.prompt ?? null;
  return {
    reply: { ...reply, model, choices: read.map(({ shown }) => shown), prompt_token_ids: prompt },
    prompt,
    choices: read.map(({ result }) => result),
  };
}

function messageOf({ reasoning_content: reasoning, tool_calls: calls, ...message }: JsonObject): JsonObject {
  return {
    ...message,
    ...(typeof reasoning === 'string' ? { reasoning } : {}),
    ...(Array.isArray(calls) ? { tool_calls: calls.map(withoutIndex) } : {}),
  };
}

function withoutIndex(call: unknown): unknown {
  if (!isObject(call)) return call;
  const { index: _, ...rest } = call;
  return rest;
}
