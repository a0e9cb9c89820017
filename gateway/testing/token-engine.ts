import { once } from 'node:events';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { decode, encode, END, misspell, template, type ToyMessage } from './toy-tokenizer.ts';

type Body = Record<string, unknown> & { messages: ToyMessage[]; tools?: unknown; stream?: boolean };
export type Generated = { prompt: number[]; completion: number[]; path: string };

/** vLLM's chat, render, generate and derender routes over a toy tokenizer. What it is to say is put into `script`. */
export class TokenEngine {
  label = 'default';
  /** The next replies' texts; ids are misspelled on purpose. An absent end: the reply is cut by its length. */
  script: { text: string; ends?: boolean }[] = [];
  /** Which routes it has. */
  scaleOut = true;
  /** Whether it takes tool calls out of the text. */
  parses = true;
  /** What it was given and gave, in order. */
  readonly generated: Generated[] = [];
  #server: Server | null = null;
  #serial = 0;

  get url(): string {
    const address = this.#server?.address() as AddressInfo;
    return `http://127.0.0.1:${address.port}`;
  }

  async start(): Promise<this> {
    this.#server = createServer((request, response) => void this.#answer(request, response));
    this.#server.listen(0, '127.0.0.1');
    await once(this.#server, 'listening');
    return this;
  }

  async stop(): Promise<void> {
    this.#server?.closeAllConnections();
    await new Promise((resolve) => this.#server?.close(resolve));
  }

  async #answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const path = request.url ?? '';
    if (path === '/weight_info') return json(response, { weight_version: this.label });
    if (path === '/v1/models') return json(response, { data: [{ id: 'policy', max_model_len: 100_000 }] });
    const parts: Buffer[] = [];
    for await (const part of request) parts.push(part as Buffer);
    const body = JSON.parse(Buffer.concat(parts).toString()) as Body;
    if (path === '/v1/chat/completions') return this.#chat(body, response);
    if (!this.scaleOut) return json(response, { detail: 'Not Found' }, 404);
    if (path === '/v1/chat/completions/render') return json(response, { token_ids: encode(template(body)), sampling_params: { max_tokens: 100 } });
    if (path === '/v1/chat/completions/derender') return this.#derender(body, response);
    if (path === '/inference/v1/generate') return this.#generate(body, response);
    json(response, { detail: 'Not Found' }, 404);
  }

  #sample(prompt: number[], path: string): { ids: number[]; finish_reason: string } {
    const { text, ends = true } = this.script.shift() ?? { text: 'nothing to say' };
    const ids = [...misspell(text), ...(ends ? [END] : [])];
    this.generated.push({ prompt, completion: ids, path });
    return { ids, finish_reason: ends ? 'stop' : 'length' };
  }

  #chat(body: Body, response: ServerResponse): void {
    const prompt = encode(template(body));
    const { ids, finish_reason } = this.#sample(prompt, 'chat');
    const { message, finish } = this.#parse(decode(ids), body.tools, finish_reason);
    const choice = { index: 0, token_ids: ids, logprobs: logprobs(ids) };
    const usage = usageOf(prompt, ids);
    if (!body.stream) return json(response, { id: 'c', object: 'chat.completion', created: 1, model: 'policy', choices: [{ ...choice, message, finish_reason: finish }], usage, prompt_token_ids: prompt });
    const head = { id: 'c', object: 'chat.completion.chunk', created: 1, model: 'policy' };
    const calls = message.tool_calls?.map((call, index) => ({ index, ...call }));
    const delta = { content: message.content, ...(calls ? { tool_calls: calls } : {}) };
    events(response, [
      { ...head, choices: [{ index: 0, delta: { role: 'assistant', content: '' }, finish_reason: null }], prompt_token_ids: prompt },
      { ...head, choices: [{ ...choice, delta, finish_reason: finish }] },
      { ...head, choices: [], usage },
    ]);
  }

  #generate(body: Record<string, unknown>, response: ServerResponse): void {
    const prompt = body.token_ids as number[];
    const { ids, finish_reason } = this.#sample(prompt, 'generate');
    const request_id = `g${++this.#serial}`;
    const weight_versions = [{ version: this.label, start: 0, end: ids.length }];
    const usage = usageOf(prompt, ids);
    if (!body.stream) return json(response, { request_id, choices: [{ index: 0, token_ids: ids, logprobs: logprobs(ids), finish_reason, weight_versions }], usage });
    let sent = '';
    const chunks = ids.map((id, i) => {
      // Text comes when its characters are whole.
      const soFar = decode(ids.slice(0, i + 1)).replace(/\uFFFD+$/, i === ids.length - 1 ? '$&' : '');
      const text = soFar.slice(sent.length);
      sent = soFar;
      const last = i === ids.length - 1;
      const choice = { index: 0, text, token_ids: [id], logprobs: logprobs([id]), finish_reason: last ? finish_reason : null };
      return { request_id, choices: [{ ...choice, ...(last ? { weight_versions } : {}) }] };
    });
    events(response, [...chunks, { request_id, choices: [], usage }]);
  }

  #derender(body: Record<string, unknown>, response: ServerResponse): void {
    const asked = body.chat_request as Body | undefined;
    if (this.parses && !asked) return json(response, { error: { message: 'chat_request is required when a parser is configured', code: 400 } }, 400);
    const { choices, usage } = body.generate_response as { choices: { token_ids: number[]; finish_reason: string }[]; usage?: unknown };
    const [choice] = choices;
    const { message, finish } = this.#parse(decode(choice?.token_ids ?? []), asked?.tools, choice?.finish_reason ?? 'stop');
    json(response, { id: 'd', object: 'chat.completion', created: 1, model: 'policy', choices: [{ index: 0, message, finish_reason: finish, logprobs: null }], usage });
  }

  #parse(text: string, tools: unknown, finish: string) {
    const found = tools && this.parses ? [...text.matchAll(/<tool_call>([^]*?)<\/tool_call>/g)] : [];
    const calls = found.flatMap(([, inner]) => {
      try {
        const { name, arguments: given } = JSON.parse(inner ?? '') as { name: string; arguments: unknown };
        return [{ id: `call-${++this.#serial}`, type: 'function', function: { name, arguments: JSON.stringify(given, null, 1) } }];
      } catch {
        return [];
      }
    });
    if (calls.length === 0) return { message: { role: 'assistant', content: text, tool_calls: undefined }, finish };
    return { message: { role: 'assistant', content: text.slice(0, found[0]?.index), tool_calls: calls }, finish: finish === 'stop' ? 'tool_calls' : finish };
  }
}

const logprobOf = (id: number): number => -((id % 7) + 1) / 4;
const logprobs = (ids: number[]) => ({ content: ids.map((token_id) => ({ token_id, logprob: logprobOf(token_id) })) });
const usageOf = (prompt: number[], ids: number[]) => ({ prompt_tokens: prompt.length, completion_tokens: ids.length, total_tokens: prompt.length + ids.length });

function json(response: ServerResponse, body: unknown, status = 200): void {
  response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body));
}

function events(response: ServerResponse, chunks: unknown[]): void {
  response.writeHead(200, { 'content-type': 'text/event-stream; charset=utf-8' });
  response.end([...chunks.map((chunk) => JSON.stringify(chunk)), '[DONE]'].map((data) => `data: ${data}\n\n`).join(''));
}
