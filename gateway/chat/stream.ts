import { clientGone, Failure } from '../failure.ts';
import type { JsonObject } from '../json.ts';
import type { EventWriter } from '../protocols/protocol.ts';
import { callHeaders } from '../request-id.ts';
import { EVENT_STREAM, KEEP_ALIVE } from '../reply-formats.ts';
import type { Answer } from './answer.ts';
import type { Call } from './call.ts';
import { StreamAccumulator } from './stream-accumulator.ts';
import { choicesOf } from '../../store/calls/choices.ts';
import { hide } from './hide.ts';
import { budgetExhaustedBody } from './budget-exhausted.ts';
import { asObject, TokenChunk } from './token-json.ts';
import { wholeAsChunks } from './whole-as-chunks.ts';

/**
 * Sends each chunk as it comes, but holds back the chunks that end a reply, and everything after the last of them, until the call is
 * committed. A failed reply gets an error event instead of its end, and the connection breaks: by `cut` where the runtime has a way of its
 * own, else by an error of the body. Nothing is made before it is asked for, so whoever asks again after the error event has already sent
 * that event.
 */
export function streamReply(
  call: Call,
  answer: Promise<Answer>,
  { keepAliveMs, cut }: { keepAliveMs: number; cut?: (() => Promise<void>) | undefined },
): Response {
  const writer = call.request.protocol.writer(call.request, call.id);
  const events = forward(call, answer, writer);
  const encoder = new TextEncoder();
  let broken: Failure | null = null;
  let isQuiet = true;
  let keepAlive: ReturnType<typeof setInterval> | undefined;
  const source: UnderlyingDefaultSource<Uint8Array> = {
    start(controller) {
      keepAlive = setInterval(() => {
        if (isQuiet) controller.enqueue(encoder.encode(writer.keepAlive?.() ?? KEEP_ALIVE));
        isQuiet = true;
      }, keepAliveMs);
    },
    async pull(controller) {
      try {
        if (broken) throw broken;
        const next = await events.next();
        isQuiet = false;
        if (!next.done) return controller.enqueue(encoder.encode(next.value));
        clearInterval(keepAlive);
        controller.close();
      } catch (error) {
        clearInterval(keepAlive);
        const isTold = broken !== null;
        broken ??= call.failureOf(error);
        if (!isTold) await call.fail(broken);
        if (!isTold && broken.code !== 'agent_disconnected')
          return controller.enqueue(encoder.encode(writer.fail(broken)));
        if (!cut) throw broken;
        await cut();
      }
    },
    async cancel() {
      clearInterval(keepAlive);
      call.abort(clientGone());
      await call.fail(clientGone());
      await events.return();
    },
  };
  return new Response(new ReadableStream(source, { highWaterMark: 0 }), {
    headers: { ...EVENT_STREAM, ...callHeaders(call.request.protocol, call.id) },
  });
}

async function* forward(call: Call, answer: Promise<Answer>, writer: EventWriter): AsyncGenerator<string, void, void> {
  const { wants, n } = call.request;
  const accumulator = new StreamAccumulator({ n, logprobs: wants.logprobs });
  const passes = !wants.logprobs && !wants.tokenIds;
  const write = (chunk: JsonObject) => writer.write(hide(chunk, wants), accumulator.prompt?.length ?? null);
  let held = '';
  try {
    const { chunks: all } = await answer;
    call.result = () => accumulator.result();
    for await (const chunks of all()) {
      let shown = '';
      for (const came of chunks) {
        accumulator.add(came);
        const passed = came instanceof TokenChunk && passes && !accumulator.isFinished ? writer.pass(came) : null;
        if (passed !== null) {
          shown += passed;
          continue;
        }
        const chunk = asObject(came);
        const { ongoing, final } = accumulator.isFinished ? { ongoing: null, final: chunk } : splitAtEnd(chunk);
        if (ongoing) shown += write(ongoing);
        if (final) held += write(final);
      }
      call.checkPrompt(accumulator.prompt);
      if (accumulator.hasTokens) call.firstTokenAt ??= new Date();
      // Chunks that came together with the end are written with it: one write instead of two.
      if (accumulator.isFinished) held = shown + held;
      else if (shown !== '') yield shown;
    }
  } catch (error) {
    if (!call.budgetExhausted) throw error;
  }
  if (call.budgetExhausted && !accumulator.hasBegun) {
    const reply = budgetExhaustedBody(call);
    await call.refuse(call.budgetExhausted, reply);
    yield wholeAsChunks(reply).map(write).join('') + writer.end();
    return;
  }
  if (call.budgetExhausted) {
    for (const chunk of accumulator.cutShort()) {
      accumulator.add(chunk);
      held += write(chunk);
    }
  }
  if (!accumulator.isFinished) throw new Failure(502, 'engine_cut', "the engine's reply ended without a finish reason");
  await call.complete();
  yield held + writer.end();
}

/**
 * Splits a chunk into what is sent at once and what ends a reply. A chunk may hold parts of several replies, and the parts of one reply
 * must stay in order.
 */
function splitAtEnd(chunk: JsonObject): { ongoing: JsonObject | null; final: JsonObject | null } {
  const choices = choicesOf(chunk);
  const isEnd = ({ finish_reason }: JsonObject) => typeof finish_reason === 'string';
  if (!choices.some(isEnd)) return { ongoing: chunk, final: null };
  if (choices.every(isEnd)) return { ongoing: null, final: chunk };
  const { prompt_token_ids: _, ...rest } = chunk;
  return {
    ongoing: { ...chunk, choices: choices.filter((choice) => !isEnd(choice)) },
    final: { ...rest, choices: choices.filter(isEnd) },
  };
}
