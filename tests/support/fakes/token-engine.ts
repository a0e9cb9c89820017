import { randomUUID } from 'node:crypto';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { text as textOf } from 'node:stream/consumers';
import { setTimeout } from 'node:timers/promises';
import { json } from './engine-server.ts';
import { hasHalf, NOT_TOKENIZED, ToyEngine, type Cue, type Line, type Span, type ToyBody } from './toy-engine.ts';
import { isObject, type JsonObject } from '../../../core/json.ts';
import type { BindsTools } from '../../../gateway/engines/engine.ts';
import { probeReply } from '../scenarios/mode-probe.ts';
import { npyOf } from './npy.ts';
import { bytesOf, decode, encode, END, template, type ToyMessage } from './toy-tokenizer.ts';

/** `text` is what is shown of its ids, `stop_reason` the stop string that ended it. */
type SampledReply = { ids: number[]; text: string; finish_reason: string; stop_reason?: string };
/** vLLM's chat, render, generate and derender routes over a toy tokenizer. Its replies come from `script`. */
export class TokenEngine extends ToyEngine {
  /** Returns which weights sampled so many tokens. By default all are its weight version's. */
  spans: (tokens: number) => Span[] = (tokens) => [{ version: this.weightVersion, start: 0, end: tokens }];
  /** Answers by the request itself when the script is used up. */
  answer: (asked: { messages: ToyMessage[]; tools?: unknown; answer?: Line }) => Line = () => ({
    text: 'nothing to say',
  });
  /** True when it has the routes for ids. */
  scaleOut = true;
  /** True when a chunk of generated text has the next token of every reply, the last reply first, instead of one token. */
  together = false;
  /** True when a chunk of its chat route has a part of a reply instead of all of it. */
  inParts = false;
  /** Milliseconds before each chunk of generated text. */
  pace = 0;
  /** Returns the ids that could have been sampled instead of this one. Null: the engine returns no sampling masks. */
  mask: ((id: number) => number[]) | null = null;
  /** The experts that a token's layers chose. Null: the engine returns none (`--enable-return-routed-experts`). */
  experts: ((id: number) => number[]) | null = null;
  /** Which tool calls it holds to their schema by a grammar. */
  bindsTools: BindsTools = 'never';
  /** Answers a route in place of the engine's own. Undefined: the engine's own answers. */
  route: (method: string, path: string, body: Record<string, unknown>) => unknown = () => undefined;
  /** Receives each request's body as it came. */
  onBody: (path: string, text: string) => void = () => {};
  #serial = 0;

  protected override async respond(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const path = request.url ?? '';
    const text = await textOf(request);
    this.onBody(path, text);
    const body = JSON.parse(text || '{}') as ToyBody;
    if (hasHalf(body)) return json(response, { error: { message: NOT_TOKENIZED, code: 400 } }, 400);
    if (typeof body.max_tokens === 'number' && body.max_tokens > this.context)
      return json(response, { error: { message: `max_tokens=${body.max_tokens} is too large`, code: 400 } }, 400);
    // Some protocols drop fields that they do not know.
    body.cue ??= body.chat_template_kwargs?.cue;
    const routed = await this.route(request.method ?? '', path, body);
    if (routed !== undefined) return json(response, routed);
    if (path === '/health') return json(response, {});
    if (path === '/metrics') return json(response, { detail: 'Not Found' }, 404);
    if (path === '/weight_info') return json(response, { weight_version: this.weightVersion });
    if (path === '/v1/models') return json(response, { data: [{ id: 'policy', max_model_len: this.context }] });
    const probe = probeReply(path, body, 'processed_logprobs', {
      masks: this.mask !== null,
      experts: this.experts !== null,
      bindsTools: this.bindsTools,
    });
    if (probe) return json(response, probe);
    await this.before({ path, body, response });
    if (response.destroyed) return;
    const fault = this.fault(path);
    if (fault === 'cut') return void request.socket.destroy();
    if (fault !== null) return json(response, { error: { message: 'at fault on purpose', code: fault } }, fault);
    if (path === '/v1/chat/completions') return this.#chat(body, response);
    if (path === '/v1/completions') return this.#complete(body, response);
    if (path === '/tokenize' && body.messages) return json(response, { count: encode(template(body)).length });
    if (!this.scaleOut) return json(response, { detail: 'Not Found' }, 404);
    if (path === '/tokenize') return json(response, { tokens: encode(String(body.prompt)) });
    if (path === '/detokenize') return json(response, { prompt: decode(body.tokens as number[]) });
    if (path === '/v1/chat/completions/render')
      return json(response, {
        token_ids: encode(template(body)),
        sampling_params: { max_tokens: 100, n: body.n, stop: body.stop },
        cue: body.cue,
        answer: this.answer(body),
      });
    if (path === '/v1/chat/completions/derender') return this.#derender(body, response);
    if (path === '/inference/v1/generate') return this.#generate(body, response);
    json(response, { detail: 'Not Found' }, 404);
  }

  #sample(
    prompt: number[],
    { n, stop }: { n?: unknown; stop?: unknown },
    cue?: Cue,
    answer: Line = { text: 'nothing to say' },
  ): SampledReply[] {
    return Array.from({ length: typeof n === 'number' ? n : 1 }, (_, i) => {
      const { spelled, ends } = this.lineOf(cue, i, answer);
      const sampled = sample(spelled, ends, stop);
      const { ids } = sampled;
      const versions = this.versionsOf(this.spans(ids.length));
      this.log(cue, { prompt, completion: ids, logprobs: ids.map(this.logprob), versions });
      return sampled;
    });
  }

  #chat(body: ToyBody, response: ServerResponse): void {
    const prompt = encode(template(body));
    const sampled = this.#sample(prompt, body, body.cue, this.answer(body));
    const choices = sampled.map(({ ids, text, finish_reason, ...ended }, index) => {
      const { message, finish } = this.#parse(text, body.tools, finish_reason);
      return {
        index,
        token_ids: ids,
        logprobs: this.#logprobs(ids),
        message,
        finish_reason: finish,
        ...ended,
        weight_versions: this.spans(ids.length),
        ...(body.stream ? {} : this.#expertsOf(prompt, ids, body.routed_experts_prompt_start)),
      };
    });
    const usage = usageOf(prompt, sampled);
    const id = `chatcmpl-${randomUUID()}`;
    if (!body.stream)
      return json(response, {
        id,
        object: 'chat.completion',
        created: 1,
        model: 'policy',
        choices,
        usage,
        prompt_token_ids: prompt,
      });
    const head = { id, object: 'chat.completion.chunk', created: 1, model: 'policy' };
    const opening = choices.map(({ index }) => ({
      ...head,
      choices: [{ index, delta: { role: 'assistant', content: '' }, finish_reason: null }],
      ...(index === 0 ? { prompt_token_ids: prompt } : {}),
    }));
    const said = choices.flatMap(({ message, ...choice }) => {
      const { role: _, tool_calls, ...rest } = message;
      const calls = tool_calls?.map((call, index) => ({ index, ...call }));
      const delta = { ...rest, ...(calls ? { tool_calls: calls } : {}) };
      const parts = this.inParts
        ? partsOf(delta).map((part) => ({ index: choice.index, delta: part, finish_reason: null }))
        : [];
      return [...parts, { ...choice, delta: this.inParts ? {} : delta }].map((each) => ({ ...head, choices: [each] }));
    });
    const sent = [...opening, ...said];
    void events(response, [...counted(sent, body, prompt), { ...head, choices: [], usage }], this.pace);
  }

  #complete(body: ToyBody, response: ServerResponse): void {
    const prompt = Array.isArray(body.prompt) ? (body.prompt as number[]) : encode(String(body.prompt));
    const sampled = this.#sample(prompt, body, body.cue);
    const usage = usageOf(prompt, sampled);
    const head = { id: 'c', object: 'text_completion', created: 1, model: 'policy' };
    const choices = sampled.map(({ ids, ...said }, index) => ({
      index,
      ...said,
      token_ids: ids,
      prompt_token_ids: prompt,
      weight_versions: this.spans(ids.length),
      ...(body.stream ? {} : this.#expertsOf(prompt, ids, body.routed_experts_prompt_start)),
      logprobs: { token_logprobs: ids.map(this.logprob), tokens: ids.map(String) },
    }));
    if (!body.stream) return json(response, { ...head, choices, usage });
    void events(response, [
      ...choices.map((choice) => ({ ...head, choices: [choice] })),
      { ...head, choices: [], usage },
    ]);
  }

  #generate(body: Record<string, unknown>, response: ServerResponse): void {
    const prompt = body.token_ids as number[];
    const sampling = body.sampling_params as { n?: unknown; stop?: unknown; routed_experts_prompt_start?: unknown };
    const sampled = this.#sample(prompt, sampling, body.cue as Cue | undefined, body.answer as Line | undefined);
    const request_id = `g${++this.#serial}`;
    const usage = usageOf(prompt, sampled);
    const asText = body.output_mode === 'text';
    const choices = sampled.map(({ ids, text, ...ended }, index) => ({
      index,
      ...(asText ? { text } : {}),
      token_ids: ids,
      logprobs: this.#logprobs(ids),
      ...this.#masks(ids),
      ...ended,
      weight_versions: this.spans(ids.length),
      ...this.#expertsOf(prompt, ids, sampling.routed_experts_prompt_start),
    }));
    if (!body.stream) return json(response, { request_id, choices, usage });
    const chunks = sampled.map(({ ids, text: all, finish_reason, ...ended }, index) => {
      let sent = '';
      return ids.map((id, i) => {
        // Text is shown when its characters are whole.
        const soFar = decode(ids.slice(0, i + 1))
          .replace(/\uFFFD+$/, i === ids.length - 1 ? '$&' : '')
          .slice(0, all.length);
        const text = soFar.slice(sent.length);
        sent = soFar;
        const last = i === ids.length - 1;
        const choice = {
          index,
          text,
          token_ids: [id],
          logprobs: this.#logprobs([id]),
          ...this.#masks([id]),
          finish_reason: last ? finish_reason : null,
        };
        return {
          request_id,
          choices: [
            {
              ...choice,
              ...(last
                ? {
                    ...ended,
                    weight_versions: this.spans(ids.length),
                    ...this.#expertsOf(prompt, ids, sampling.routed_experts_prompt_start),
                  }
                : {}),
            },
          ],
        };
      });
    });
    const rows = Array.from({ length: Math.max(...chunks.map((each) => each.length)) }, (_, i) =>
      chunks.flatMap((each) => each[i]?.choices ?? []).toReversed(),
    );
    const sent = this.together ? rows.map((row) => ({ request_id, choices: row })) : chunks.flat();
    void events(response, [...counted(sent, body, prompt), { request_id, choices: [], usage }], this.pace);
  }

  #derender(body: Record<string, unknown>, response: ServerResponse): void {
    const asked = body.chat_request as ToyBody | undefined;
    if (this.parses && !asked)
      return json(
        response,
        { error: { message: 'chat_request is required when a parser is configured', code: 400 } },
        400,
      );
    const { choices, usage } = body.generate_response as {
      choices: { index?: number; token_ids: number[]; finish_reason: string }[];
      usage?: unknown;
    };
    if (choices.some((choice) => !choice.token_ids.length))
      return json(response, { error: { message: 'a choice has empty or null token_ids', code: 400 } }, 400);
    const derendered = choices.map((choice, index) => {
      // A parser sees special tokens, also the one that ended the turn. The finish reason is the generation's.
      const text = decode(choice.token_ids) + (this.parses && choice.token_ids.at(-1) === END ? '<|im_end|>' : '');
      const { message } = this.#parse(text, asked?.tools, choice.finish_reason);
      return { index: choice.index ?? index, message, finish_reason: choice.finish_reason, logprobs: null };
    });
    json(response, {
      id: `chatcmpl-${randomUUID()}`,
      object: 'chat.completion',
      created: 1,
      model: 'policy',
      choices: derendered,
      usage,
    });
  }

  /** In the form of vLLM 0.32: base64 of NumPy's file, without the last token, from the prompt's token `from` on. */
  #expertsOf(prompt: readonly number[], ids: readonly number[], from: unknown) {
    const { experts } = this;
    if (!experts) return {};
    const rows = [...prompt, ...ids].slice(typeof from === 'number' ? from : 0, -1).map(experts);
    return { routed_experts: npyOf(rows).toString('base64') };
  }

  #masks(ids: number[]) {
    const { mask } = this;
    return mask ? { sampling_mask: ids.map((id) => mask(id)) } : {};
  }

  #logprobs(ids: number[]) {
    return {
      content: ids.map((id) => ({
        token: decode([id]),
        logprob: this.logprob(id),
        bytes: bytesOf(id),
        top_logprobs: [],
      })),
    };
  }

  #parse(whole: string, tools: unknown, finish: string) {
    const thought = this.parses ? /^<think>([^]*?)<\/think>/.exec(whole) : null;
    const reasoning = thought ? { reasoning: thought[1] } : {};
    const text = thought ? whole.slice(thought[0].length) : whole;
    const found = tools && this.parses ? [...text.matchAll(/<tool_call>([^]*?)<\/tool_call>/g)] : [];
    const calls = found.flatMap(([, inner]) => {
      try {
        const { name, arguments: given } = JSON.parse(inner ?? '') as { name: string; arguments: unknown };
        return [
          {
            id: `call-${++this.#serial}`,
            type: 'function',
            function: { name, arguments: JSON.stringify(given, null, 1) },
          },
        ];
      } catch {
        return [];
      }
    });
    if (calls.length === 0)
      return { message: { role: 'assistant', content: text, tool_calls: undefined, ...reasoning }, finish };
    return {
      message: { role: 'assistant', content: text.slice(0, found[0]?.index), tool_calls: calls, ...reasoning },
      finish: finish === 'stop' ? 'tool_calls' : finish,
    };
  }
}

/** Ends a reply at a stop string, with the token that completes it. The ids keep that token, and the text does not have the string. */
function sample(spelled: readonly number[], ends: boolean, stop: unknown): SampledReply {
  const stops = [stop].flat().filter((each) => typeof each === 'string');
  for (let end = 1; end <= spelled.length && stops.length > 0; end++) {
    const ids = spelled.slice(0, end);
    const said = decode(ids);
    const stop_reason = stops.find((each) => said.includes(each));
    if (stop_reason !== undefined)
      return { ids, text: said.slice(0, said.indexOf(stop_reason)), finish_reason: 'stop', stop_reason };
  }
  return { ids: [...spelled, ...(ends ? [END] : [])], text: decode(spelled), finish_reason: ends ? 'stop' : 'length' };
}

type Delta = {
  content?: string;
  reasoning?: string;
  tool_calls?: { index: number; function: { name?: string; arguments: string } }[];
};

/** Splits a message into its reasoning, its text, each tool call's head, and its arguments in two parts. */
function partsOf({ reasoning, content, tool_calls = [] }: Delta): Delta[] {
  const calls = tool_calls.flatMap((call): Delta[] => {
    const {
      index,
      function: { name, arguments: given },
    } = call;
    const rest = [given.slice(0, 3), given.slice(3)].map((part) => ({
      tool_calls: [{ index, function: { arguments: part } }],
    }));
    return [{ tool_calls: [{ ...call, function: { name, arguments: '' } }] }, ...rest];
  });
  return [...(reasoning ? [{ reasoning }] : []), { content }, ...calls];
}

function usageOf(prompt: number[], sampled: SampledReply[]) {
  const completion_tokens = sampled.reduce((sum, { ids }) => sum + ids.length, 0);
  return { prompt_tokens: prompt.length, completion_tokens, total_tokens: prompt.length + completion_tokens };
}

/** Adds the counts until then to each chunk, if the request asks for that. */
function counted<T extends { choices: object[] }>(
  chunks: T[],
  { stream_options: options }: JsonObject,
  prompt: number[],
) {
  if (!isObject(options) || options['continuous_usage_stats'] !== true) return chunks;
  let completion_tokens = 0;
  return chunks.map((chunk) => {
    for (const choice of chunk.choices)
      completion_tokens += 'token_ids' in choice && Array.isArray(choice.token_ids) ? choice.token_ids.length : 0;
    const total_tokens = prompt.length + completion_tokens;
    return { ...chunk, usage: { prompt_tokens: prompt.length, completion_tokens, total_tokens } };
  });
}

async function events(response: ServerResponse, chunks: unknown[], pace = 0): Promise<void> {
  response.writeHead(200, { 'content-type': 'text/event-stream; charset=utf-8' });
  for (const data of [...chunks.map((chunk) => JSON.stringify(chunk)), '[DONE]']) {
    if (pace > 0) await setTimeout(pace);
    if (response.destroyed) return;
    response.write(`data: ${data}\n\n`);
  }
  response.end();
}
