import type { TokenChunk } from '../../engines/engine.ts';
import { errorBody, type Failure } from '../../failure.ts';
import { isObject, type JsonObject } from '../../json.ts';
import { asTypedEvent } from '../../reply-formats.ts';
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
  /** Text that came while a tool call was open, which may continue. */
  #waiting = '';
  #finish: unknown = null;
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
    if (reasoning !== '') this.#think(reasoning);
    if (this.#open?.call) this.#waiting += text;
    else if (text !== '') this.#speak(text, logprobsOf(choice) ?? []);
    for (const call of tools) this.#call(call);
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
    this.#close();
    const status = this.#finish === 'length' ? 'incomplete' : 'completed';
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
      // The rest of a closed call has no place any more.
      if (call.name === null) return;
      this.#close();
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

  #close(): void {
    const open = this.#open;
    if (!open) return;
    const item = open.call
      ? this.#closeCall(open, open.call)
      : open.type === 'reasoning'
        ? this.#closeReasoning(open)
        : this.#closeMessage(open);
    this.#add('response.output_item.done', { output_index: this.#output.length, item });
    this.#output.push(item);
    this.#open = null;
    if (this.#waiting === '') return;
    const text = this.#waiting;
    this.#waiting = '';
    this.#speak(text, []);
    this.#close();
  }

  #closeMessage({ id, text, logprobs }: OpenItem): JsonObject {
    const part = textPart(text, logprobs.length > 0 ? logprobs : null);
    this.#part('response.output_text.done', { text, logprobs: [] });
    this.#part('response.content_part.done', { part });
    return messageItem(id, [part], 'completed');
  }

  #closeReasoning({ id, text }: OpenItem): JsonObject {
    this.#part('response.reasoning_text.done', { text });
    this.#part('response.content_part.done', { part: { type: 'reasoning_text', text } });
    return reasoningItem(id, text, 'completed');
  }

  #closeCall({ id, text: given, tool }: OpenItem, call: ToolCall): JsonObject {
    const item = callItem({ id, call, tool, given, status: 'completed' });
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
