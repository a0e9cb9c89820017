import type { TokenChunk } from '../../engines/engine.ts';
import { errorBody, type Failure } from '../../failure.ts';
import { isObject, parseObject, type JsonObject } from '../../json.ts';
import { asTypedEvent } from '../../reply-formats.ts';
import { CallsInOrder } from '../calls-in-order.ts';
import type { EventWriter } from '../protocol.ts';
import { onlyChoice, parseMessage, type ToolCall } from '../message-parts.ts';
import { callItem, itemId, logprobsOf, messageItem, reasoningItem, textPart, type ItemType } from './items.ts';
import { responseObject } from './response.ts';
import { inputOf, type NamedTool } from './tools.ts';

type OpenItem = {
  type: ItemType;
  id: string;
  text: string;
  logprobs: JsonObject[];
  call: ToolCall | null;
  tool: NamedTool | null;
};

/** Writes a chat reply's chunks as OpenAI's numbered events of a response: one output item at a time. */
export class ResponseEvents implements EventWriter {
  readonly #callId: string;
  readonly #asked: JsonObject;
  readonly #tools: readonly NamedTool[];
  readonly #output: JsonObject[] = [];
  #head: { created: unknown; model: unknown } | null = null;
  #open: OpenItem | null = null;
  readonly #calls = new CallsInOrder();
  /** Texts and thinking that came while a tool call was open, which may continue. */
  #waiting: (() => void)[] = [];
  #finish: unknown = null;
  /** The status of a call without all of its arguments. */
  #cutCalls: 'completed' | 'incomplete' = 'completed';
  #usage: unknown = null;
  #number = 0;
  #events = '';

  constructor(callId: string, asked: JsonObject, tools: readonly NamedTool[]) {
    this.#callId = callId;
    this.#asked = asked;
    this.#tools = tools;
  }

  write(chunk: JsonObject): string {
    this.#usage = chunk.usage ?? this.#usage;
    this.#start(chunk);
    const choice = onlyChoice(chunk);
    const { reasoning, text, tools } = parseMessage(choice.delta);
    if (reasoning !== '') this.#sayOrWait(() => this.#think(reasoning));
    if (text !== '') this.#sayOrWait(() => this.#speak(text, logprobsOf(choice) ?? []));
    for (const tool of tools) for (const part of this.#calls.add(tool)) this.#call(part);
    this.#finish = choice.finish_reason ?? this.#finish;
    return this.#take();
  }

  pass({ content }: Pick<TokenChunk, 'content'>): string | null {
    if (this.#open?.type !== 'message') return null;
    if (content !== '') this.#speak(content, []);
    return this.#take();
  }

  end(): string {
    this.#start({});
    const status = this.#finish === 'length' ? 'incomplete' : 'completed';
    this.#cutCalls = status;
    for (const part of this.#calls.end()) this.#call(part);
    this.#close(status);
    this.#add(`response.${status}`, { response: this.#response(status) });
    return this.#take();
  }

  fail(failure: Failure): string {
    this.#start({});
    const { code, message } = failure;
    this.#add('response.failed', { response: this.#response('failed', { code, message }) });
    const { error } = errorBody(failure);
    this.#add('error', { ...(isObject(error) ? error : { message }), code, param: null });
    return this.#take();
  }

  #start({ created, model }: JsonObject): void {
    if (this.#head) return;
    this.#head = { created: created ?? Math.floor(Date.now() / 1000), model: model ?? this.#asked.model ?? null };
    const response = this.#response('in_progress');
    this.#add('response.created', { response });
    this.#add('response.in_progress', { response });
  }

  #response(status: 'in_progress' | 'completed' | 'incomplete' | 'failed', error?: JsonObject): JsonObject {
    const usage = status === 'in_progress' ? null : this.#usage;
    const { created, model } = this.#head ?? { created: null, model: null };
    return responseObject(this.#asked, {
      callId: this.#callId,
      created,
      model,
      status,
      output: [...this.#output],
      usage,
      error,
    });
  }

  #think(delta: string): void {
    const open = this.#ensure('reasoning', (id) => reasoningItem(id, null, 'in_progress'), {
      type: 'reasoning_text',
      text: '',
    });
    open.text += delta;
    this.#part('response.reasoning_text.delta', { delta });
  }

  #speak(delta: string, logprobs: JsonObject[]): void {
    const open = this.#ensure('message', (id) => messageItem(id, [], 'in_progress'), textPart('', []));
    open.text += delta;
    for (const each of logprobs) open.logprobs.push(each);
    this.#part('response.output_text.delta', { delta, logprobs });
  }

  #call(call: ToolCall): void {
    let open = this.#open;
    if (!open?.call || open.call.index !== call.index) {
      this.#close(parseObject(open?.text ?? '') === null ? this.#cutCalls : 'completed');
      const tool = this.#tools.find(({ name }) => name === call.name) ?? null;
      const type = tool?.kind === 'custom' ? 'custom_tool_call' : 'function_call';
      open = this.#begin(type, (id) => callItem({ id, call, tool, given: '', status: 'in_progress' }), call, tool);
    }
    open.text += call.arguments;
    if (call.arguments !== '' && open.type === 'function_call')
      this.#item('response.function_call_arguments.delta', { delta: call.arguments });
  }

  #ensure(type: 'message' | 'reasoning', item: (id: string) => JsonObject, part: JsonObject): OpenItem {
    if (this.#open?.type === type) return this.#open;
    this.#close();
    const open = this.#begin(type, item);
    this.#part('response.content_part.added', { part });
    return open;
  }

  #begin(
    type: ItemType,
    item: (id: string) => JsonObject,
    call: ToolCall | null = null,
    tool: NamedTool | null = null,
  ): OpenItem {
    const isCall = call !== null;
    const id = itemId(
      type,
      this.#callId,
      this.#output.filter((each) => (isCall ? 'call_id' in each : each.type === type)).length,
    );
    this.#open = { type, id, text: '', logprobs: [], call, tool };
    this.#add('response.output_item.added', { output_index: this.#output.length, item: item(id) });
    return this.#open;
  }

  #sayOrWait(say: () => void): void {
    if (this.#open?.call) this.#waiting.push(say);
    else say();
  }

  /** `status` is that of the last item, which the end of the reply may have cut. */
  #close(status: 'completed' | 'incomplete' = 'completed'): void {
    const open = this.#open;
    if (!open) return;
    const waited = this.#waiting;
    const own = waited.length > 0 ? 'completed' : status;
    const item = open.call
      ? this.#closeCall(open, open.call, own)
      : open.type === 'reasoning'
        ? this.#closeReasoning(open, own)
        : this.#closeMessage(open, own);
    this.#add('response.output_item.done', { output_index: this.#output.length, item });
    this.#output.push(item);
    this.#open = null;
    this.#waiting = [];
    for (const say of waited) say();
    if (waited.length > 0) this.#close(status);
  }

  #closeMessage({ id, text, logprobs }: OpenItem, status: string): JsonObject {
    const part = textPart(text, logprobs.length > 0 ? logprobs : null);
    this.#part('response.output_text.done', { text, logprobs: [] });
    this.#part('response.content_part.done', { part });
    return messageItem(id, [part], status);
  }

  #closeReasoning({ id, text }: OpenItem, status: string): JsonObject {
    this.#part('response.reasoning_text.done', { text });
    this.#part('response.content_part.done', { part: { type: 'reasoning_text', text } });
    return reasoningItem(id, text, status);
  }

  #closeCall({ id, text: given, tool }: OpenItem, call: ToolCall, status: string): JsonObject {
    const item = callItem({ id, call, tool, given, status });
    if (tool?.kind === 'custom') {
      const input = inputOf(given);
      // No text can be read from half an object, so it is sent in one piece.
      if (input !== '') this.#item('response.custom_tool_call_input.delta', { delta: input });
      this.#item('response.custom_tool_call_input.done', { input });
    } else this.#item('response.function_call_arguments.done', { name: item.name, arguments: given });
    return item;
  }

  #part(type: string, more: JsonObject): void {
    this.#item(type, { content_index: 0, ...more });
  }

  #item(type: string, more: JsonObject): void {
    this.#add(type, { item_id: this.#open?.id, output_index: this.#output.length, ...more });
  }

  #add(type: string, event: JsonObject): void {
    this.#events += asTypedEvent({ ...event, type, sequence_number: this.#number++ });
  }

  #take(): string {
    const events = this.#events;
    this.#events = '';
    return events;
  }
}
