import { clientGone, errorBody, Failure } from '../failure.ts';
import { sleep } from '../sleep.ts';
import { asEvent, DONE } from '../sse.ts';
import type { Answer } from './answer.ts';
import type { Call } from './call.ts';
import { Gather } from './gather.ts';
import { hide, isOnlyUsage } from './hide.ts';

const FLUSH_MS = 20;

/**
 * Forwards each chunk as it comes; the one that ends the reply, and all after it, once the call is committed.
 * A reply that fails is cut: an error event instead of the finish, then a broken connection.
 */
export function streamReply(call: Call, answer: Answer): Response {
  const events = forward(call, answer);
  const encoder = new TextEncoder();
  let broken: Failure | null = null;
  const body = new ReadableStream<Uint8Array>({
    async pull(controller) {
      if (broken) {
        // A connection that breaks takes along what is still on its way: the error event goes first.
        await sleep(FLUSH_MS);
        throw broken;
      }
      try {
        const next = await events.next();
        if (next.done) controller.close();
        else controller.enqueue(encoder.encode(next.value));
      } catch (error) {
        broken = call.failureOf(error);
        await call.fail(broken);
        if (broken.code !== 'agent_disconnected') controller.enqueue(encoder.encode(asEvent(JSON.stringify(errorBody(broken)))));
        else throw broken;
      }
    },
    async cancel() {
      call.abort(clientGone());
      await call.fail(clientGone());
      await events.return();
    },
  });
  const headers = { 'content-type': 'text/event-stream; charset=utf-8', 'cache-control': 'no-cache', 'x-accel-buffering': 'no' };
  return new Response(body, { headers: { ...headers, 'x-trialgate-call': call.id } });
}

async function* forward(call: Call, answer: Answer): AsyncGenerator<string, void, void> {
  const { wants } = call.request;
  const gather = new Gather();
  call.ending = () => ({
    tokens: gather.tokens,
    versions: gather.versions,
    counted: gather.counted,
    finishReason: gather.finishReason,
    reply: gather.reply(),
  });
  const held: string[] = [];
  for await (const chunk of answer.chunks()) {
    gather.add(chunk);
    call.checkPrompt(gather.tokens.prompt);
    if (gather.tokens.completion) call.firstTokenAt ??= new Date();
    if (isOnlyUsage(chunk) && !wants.usage) continue;
    const shown = asEvent(JSON.stringify(hide(chunk, wants)));
    if (gather.finishReason === null) yield shown;
    else held.push(shown);
  }
  if (gather.finishReason === null) throw new Failure(502, 'engine_cut', "the engine's reply ended without a finish");
  await call.complete();
  yield held.join('') + asEvent(DONE);
}
