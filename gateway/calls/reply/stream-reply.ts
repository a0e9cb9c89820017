import { choicesOf } from '../../../store/calls/choices.ts';
import { hide, wholeAsChunks, withoutPrompt } from '../../engines/completion.ts';
import { asObject, isToken } from '../../engines/engine.ts';
import { clientGone, Failure } from '../../failure.ts';
import type { JsonObject } from '../../json.ts';
import type { EventWriter } from '../../protocols/protocol.ts';
import { EVENT_STREAM, KEEP_ALIVE } from '../../reply-formats.ts';
import { callHeaders } from '../../request-id.ts';
import { budgetExhaustedBody } from './budget-exhausted.ts';
import type { Call } from '../call.ts';
import { checkPrompt } from '../budgets/check-prompt.ts';
import type { Generation, Progress } from '../generate.ts';
import type { Recording } from '../record.ts';
import { replyOfFailure } from './reply-of-failure.ts';
import { StreamAccumulator } from './stream-accumulator.ts';

type Options = { keepAliveMs: number; cut?: (() => Promise<void>) | undefined };

/**
 * Waits a while for a stream's first words, so that an earlier failure has a status of its own. Then the head is sent, and the agent gets
 * keep-alive comments.
 */
export async function streamReply(
  call: Call,
  generation: Generation,
  recording: Recording,
  options: Options,
): Promise<Response> {
  try {
    await waitAtMost(options.keepAliveMs, generation.answer);
  } catch (error) {
    return replyOfFailure(call, recording, error, generation.progress);
  }
  return streamOf(call, new StreamedReply(call, generation, recording), recording, options);
}

async function waitAtMost(ms: number, answer: Promise<unknown>): Promise<void> {
  const waited = Promise.withResolvers<void>();
  const timer = setTimeout(waited.resolve, ms);
  answer.catch(() => {});
  await Promise.race([answer, waited.promise]).finally(() => clearTimeout(timer));
}

/**
 * Sends each chunk as it comes, but holds back the chunks that end a reply, and everything after the last of them, until the call is
 * committed. A failed reply gets an error event instead of its end, and the connection breaks: by `cut` where the runtime has a way of its
 * own, else by an error of the body. Nothing is made before it is asked for, so whoever asks again after the error event has already sent
 * that event.
 */
function streamOf(call: Call, reply: StreamedReply, recording: Recording, { keepAliveMs, cut }: Options): Response {
  const { writer } = reply;
  const events = reply.events();
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
        if (!isTold) await recording.fail(broken, reply.progress);
        if (!isTold && broken.code !== 'agent_disconnected')
          return controller.enqueue(encoder.encode(writer.fail(broken)));
        if (!cut) throw broken;
        await cut();
      }
    },
    async cancel() {
      clearInterval(keepAlive);
      call.abort(clientGone());
      await recording.fail(clientGone(), reply.progress);
      await events.return();
    },
  };
  return new Response(new ReadableStream(source, { highWaterMark: 0 }), {
    headers: { ...EVENT_STREAM, ...callHeaders(call.request.protocol, call.id) },
  });
}

/** Turns an answer's chunks into the events of the agent's protocol, and knows at each moment what has come. */
class StreamedReply {
  readonly writer: EventWriter;
  readonly #call: Call;
  readonly #generation: Generation;
  readonly #recording: Recording;
  readonly #accumulator: StreamAccumulator;
  #hasBegun = false;
  #firstTokenAt: Date | null = null;

  constructor(call: Call, generation: Generation, recording: Recording) {
    const { protocol, n, wants } = call.request;
    this.writer = protocol.writer(call.request, call.id);
    this.#call = call;
    this.#generation = generation;
    this.#recording = recording;
    this.#accumulator = new StreamAccumulator({ n, logprobs: wants.logprobs });
    call.follows(() => this.progress);
  }

  get progress(): Progress {
    const { progress } = this.#generation;
    return this.#hasBegun
      ? { ...progress, result: this.#accumulator.result(), firstTokenAt: this.#firstTokenAt }
      : progress;
  }

  async *events(): AsyncGenerator<string, void, void> {
    const call = this.#call;
    const accumulator = this.#accumulator;
    const { writer } = this;
    const { wants } = call.request;
    const passes = !wants.logprobs && !wants.tokenIds;
    const write = (chunk: JsonObject) => writer.write(chunk, accumulator.prompt?.length ?? null);
    let held = '';
    try {
      const { chunks: all } = await this.#generation.answer;
      this.#hasBegun = true;
      for await (const chunks of all()) {
        let shown = '';
        for (const came of chunks) {
          accumulator.add(came);
          const passed = isToken(came) && passes && !accumulator.isFinished ? writer.pass(came) : null;
          if (passed !== null) {
            shown += passed;
            continue;
          }
          const chunk = asObject(came).shown;
          const { ongoing, final } = accumulator.isFinished ? { ongoing: null, final: chunk } : splitAtEnd(chunk);
          if (ongoing) shown += write(ongoing);
          if (final) held += write(final);
        }
        checkPrompt(call.trial, accumulator.prompt);
        if (accumulator.hasTokens) this.#firstTokenAt ??= new Date();
        // Chunks that came together with the end are written with it: one write instead of two.
        if (accumulator.isFinished) held = shown + held;
        else if (shown !== '') yield shown;
      }
    } catch (error) {
      if (!call.budgetExhausted) throw error;
    }
    if (call.budgetExhausted && !accumulator.hasBegun) {
      const reply = budgetExhaustedBody(call);
      await this.#recording.refuse(call.budgetExhausted, reply, this.progress);
      yield (
        wholeAsChunks(reply)
          .map((chunk) => write(hide(chunk, wants)))
          .join('') + writer.end()
      );
      return;
    }
    if (call.budgetExhausted) {
      for (const chunk of accumulator.cutShort()) {
        accumulator.add(chunk);
        held += write(hide(chunk.shown, wants));
      }
    }
    if (!accumulator.isFinished)
      throw new Failure(502, 'engine_cut', "the engine's reply ended without a finish reason");
    await this.#recording.complete(this.progress);
    yield held + writer.end();
  }
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
  return {
    ongoing: { ...chunk, choices: choices.filter((choice) => !isEnd(choice)) },
    final: { ...withoutPrompt(chunk), choices: choices.filter(isEnd) },
  };
}
