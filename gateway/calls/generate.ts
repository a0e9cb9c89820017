import type { KeepThinking } from '../../core/sampling-choices.ts';
import { showsMedia } from '../engines/adapt-messages.ts';
import { EMPTY_RESULT, sampledTokens, type CallResult } from '../engines/call-result.ts';
import type { Answer, Chunk } from '../engines/engine.ts';
import { EngineFailed } from '../engines/engine-failed.ts';
import { Exchange } from '../engines/exchange.ts';
import type { Lease } from '../engines/lease.ts';
import { withoutThinking } from '../engines/thinking.ts';
import type { RecordedTurn } from '../conversations/conversations.ts';
import { Failure } from '../failure.ts';
import type { JsonObject } from '../json.ts';
import type { Call } from './call.ts';
import { checkPrompt } from './budgets/check-prompt.ts';
import type { CallDeps } from './deps.ts';
import { checkModel, place, placedOn, traitsOf, type Placed } from './place.ts';
import { withOneCall } from './reply/one-call.ts';
import { reportLeftOut } from './report-left-out.ts';

/** The state of a call that has not ended. */
export type Progress = {
  placed: Placed | null;
  result: CallResult;
  /** The turn whose ids it continues, if several have the request's text. */
  parent: RecordedTurn | null;
  /** True when the engine got an image, a sound, a video or a file. */
  showsMedia: boolean;
  firstTokenAt: Date | null;
};

/** The engine's work on a call: the replica that has it now, and its answer once that begins. */
export class Generation {
  /** Resolves once the reply, or a stream's first chunks, are there. */
  readonly answer: Promise<Answer>;
  readonly #deps: CallDeps;
  readonly #call: Call;
  #placed: Placed | null = null;
  #exchange: Exchange | null = null;
  #answer: Answer | null = null;
  #showsMedia = false;

  constructor(deps: CallDeps, call: Call) {
    this.#deps = deps;
    this.#call = call;
    call.onEnd((as) => {
      this.#exchange?.stop();
      if (as === 'completed') this.#placed?.lease.replica.noteAnswer();
      this.#placed?.lease.release(tokensOf(this.progress.result));
    });
    this.answer = this.#run();
  }

  get progress(): Progress {
    return {
      placed: this.#placed,
      result: this.#answer?.sampled() ?? EMPTY_RESULT,
      parent: this.#answer?.parent ?? null,
      showsMedia: this.#showsMedia,
      firstTokenAt: null,
    };
  }

  /**
   * Until the answer begins the agent has seen nothing, so another replica may take the call: a lost one is skipped for a while, and one
   * that answered 5xx is not asked again; its answer stands if there is no other. A single such answer does not show whether the request or
   * the engine is at fault, so when no other engine is left the same one is asked once more. When healthy engines answer 5xx twice, the
   * request is at fault.
   */
  async #run(): Promise<Answer> {
    const { settings, log } = this.#deps;
    const call = this.#call;
    const failed = new Set<string>();
    let lastError: EngineFailed | null = null;
    let healthyErrors = 0;
    let isRepeated = false;
    let deadline = Date.now() + settings.holdMs;
    for (let losses = 0; ; losses++) {
      if (losses === 1) deadline = Date.now() + settings.holdMs;
      let lease: Lease;
      try {
        lease = await place(this.#deps, call, { deadline: lastError ? 0 : deadline, except: failed });
      } catch (error) {
        if (healthyErrors !== 1 || isRepeated || call.signal.aborted) throw lastError ?? error;
        isRepeated = true;
        failed.clear();
        continue;
      }
      try {
        const answer = await this.#ask(lease);
        return call.request.stream ? await withFirstChunks(answer) : answer;
      } catch (error) {
        this.#exchange?.stop();
        lease.release();
        if (call.signal.aborted) throw error;
        this.#answer = null;
        const { url } = lease.replica.connection;
        if (error instanceof EngineFailed) {
          failed.add(url);
          lastError = error;
          if (error.isAnswer && (await lease.replica.isAlive())) healthyErrors += 1;
          error.fault = healthyErrors > 1 ? 'request' : 'engine';
        } else if (error instanceof Failure) throw error;
        else lease.replica.markUnavailable();
        log(`call ${call.id}: engine ${url} failed: ${error instanceof Error ? error.message : String(error)}`, {
          ...call.logged,
          level: 'warning',
        });
      }
    }
  }

  async #ask(lease: Lease): Promise<Answer> {
    const call = this.#call;
    const { request, trial } = call;
    const { engine } = lease.replica;
    checkModel(this.#deps, call, lease);
    this.#placed = placedOn(call, lease, null);
    const exchange = new Exchange(lease, {
      signal: call.signal,
      abort: (why) => call.abort(why),
      idleMs: this.#deps.settings.idleMs,
    });
    this.#exchange = exchange;
    const traits = await traitsOf(this.#deps, call, lease);
    const { inForce } = (this.#placed = placedOn(call, lease, traits));
    const { kind, stream, n, wants, state } = request;
    const keepThinking = trial.sampling.keep_thinking ?? 'as_template';
    const asked = {
      kind,
      stream,
      n,
      wants,
      traits,
      keepThinking,
      hasThinking: state.hasThinking,
      body: withoutAllThinking(withoutLimitOfCalls(inForce, lease), keepThinking),
      // If the agent saw only a part of a turn, the next prompt has what it saw.
      parent: state.parent?.isShownInPart ? null : state.parent,
      ambiguousParents: state.ambiguousParents,
      checkPrompt: (prompt: readonly number[] | null) => checkPrompt(trial, prompt),
    };
    const { body, leftOut } = await engine.prepare(lease, asked);
    this.#reportLeftOut(leftOut);
    this.#showsMedia = showsMedia(body);
    const answer = await engine.generate(exchange, asked, body);
    return (this.#answer = limitsCalls(request.body) ? withOneCall(answer, (index) => call.noteCut(index)) : answer);
  }

  #reportLeftOut(leftOut: readonly { feature: string; messageIndex: number }[]): void {
    const { outline, state } = this.#call.request;
    const fresh = leftOut.filter(
      ({ messageIndex }) => !state.known.has(outline.lists.messages?.[messageIndex]?.digest ?? ''),
    );
    reportLeftOut(
      this.#deps,
      this.#call.trial,
      fresh.map(({ feature, messageIndex }) => ({ at: `messages.${messageIndex}`, value: { type: feature } })),
    );
  }
}

const limitsCalls = ({ parallel_tool_calls: parallel }: JsonObject): boolean => parallel === false;

/**
 * An engine that is told of one call alone may force it by a grammar, or hide the others. One whose calls are trained is not told: the
 * gateway leaves out further calls itself, and so knows of them.
 */
function withoutLimitOfCalls(body: JsonObject, { replica }: Lease): JsonObject {
  if (replica.engine.whyUntrainable !== null || !limitsCalls(body)) return body;
  const { parallel_tool_calls: _, ...rest } = body;
  return rest;
}

/** With `never` no prompt has the thinking of earlier replies, also if the client sends it. */
const withoutAllThinking = (body: JsonObject, keep: KeepThinking): JsonObject =>
  keep === 'never' && Array.isArray(body.messages)
    ? { ...body, messages: withoutThinking(body.messages, keep, 0) }
    : body;

/** Returns the tokens of a call's prompt and replies, if they are known. */
const tokensOf = (result: CallResult): number | undefined =>
  result.prompt ? result.prompt.length + sampledTokens(result) : undefined;

/**
 * Returns the answer once its first chunks are there. It wraps the iterator by hand, because a generator would cost each chunk of a stream
 * some microtasks more.
 */
async function withFirstChunks(answer: Answer): Promise<Answer> {
  const chunks = answer.chunks()[Symbol.asyncIterator]();
  let first: Promise<IteratorResult<Chunk[]>> | null = chunks.next();
  await first;
  const next = () => {
    const result = first ?? chunks.next();
    first = null;
    return result;
  };
  const stop = async () => (await chunks.return?.()) ?? { done: true as const, value: undefined };
  return { ...answer, chunks: () => ({ [Symbol.asyncIterator]: () => ({ next, return: stop }) }) };
}
