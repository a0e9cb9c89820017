import type { TokenChunk } from '../../engines/engine.ts';
import type { Failure } from '../../failure.ts';
import { parseObject, type JsonObject } from '../../json.ts';
import { asTypedEvent } from '../../reply-formats.ts';
import type { EventWriter } from '../protocol.ts';
import { onlyChoice, parseMessage, type ToolCall } from '../message-parts.ts';
import { usageOf } from '../usage.ts';
import { messageErrorBody } from './errors.ts';
import { messageHead, messageUsage, signatureOf } from './from-chat.ts';
import { stopReasonOf } from './stop-reason.ts';

type Kind = 'thinking' | 'text' | 'tool_use';

/** Writes a chat reply's chunks as Anthropic's events: one content block at a time, and the end of the message last. */
export class MessageEvents implements EventWriter {
  readonly #callId: string;
  #model: unknown = null;
  #started = false;
  #blocks = 0;
  #open: Kind | null = null;
  /** The reply's tool call that is open. */
  #tool: number | null = null;
  #arguments = '';
  #callsTools = false;
  /** Text that came while a tool call was open, which may continue. */
  #waiting = '';
  #finish: unknown = null;
  #matched: unknown = null;
  #usage: unknown = null;
  #promptTokens: number | null = null;
  #events = '';

  constructor(callId: string) {
    this.#callId = callId;
  }

  write(chunk: JsonObject, promptTokens: number | null): string {
    this.#promptTokens ??= promptTokens;
    this.#model ??= chunk.model;
    this.#usage = chunk.usage ?? this.#usage;
    this.#start();
    const choice = onlyChoice(chunk);
    const { reasoning, text, tools } = parseMessage(choice.delta);
    if (reasoning !== '') this.#say('thinking', { type: 'thinking_delta', thinking: reasoning });
    if (this.#open === 'tool_use') this.#waiting += text;
    else if (text !== '') this.#say('text', { type: 'text_delta', text });
    for (const tool of tools) this.#call(tool);
    this.#finish = choice.finish_reason ?? this.#finish;
    this.#matched = choice.stop_reason ?? this.#matched;
    return this.#take();
  }

  pass({ content }: Pick<TokenChunk, 'content'>): string | null {
    if (this.#open !== 'text') return null;
    if (content !== '') this.#delta({ type: 'text_delta', text: content });
    return this.#take();
  }

  end(): string {
    this.#start();
    this.#close();
    const isWhole = parseObject(this.#arguments || '{}') !== null;
    const delta = stopReasonOf(this.#finish, this.#matched, { callsTools: this.#callsTools, isWhole });
    this.#add({ type: 'message_delta', delta, usage: messageUsage(usageOf(this.#usage, this.#promptTokens)) });
    this.#add({ type: 'message_stop' });
    return this.#take();
  }

  keepAlive(): string {
    return asTypedEvent({ type: 'ping' });
  }

  fail(failure: Failure): string {
    return asTypedEvent({ type: 'error', ...messageErrorBody(failure) });
  }

  #start(): void {
    if (this.#started) return;
    this.#started = true;
    const usage = messageUsage(usageOf(null, this.#promptTokens));
    this.#add({
      type: 'message_start',
      message: {
        ...messageHead(this.#callId, this.#model),
        content: [],
        stop_reason: null,
        stop_sequence: null,
        usage,
      },
    });
  }

  #call({ index, id, name, arguments: part }: ToolCall): void {
    if (this.#open !== 'tool_use' || this.#tool !== index) {
      // The rest of a closed call has no place any more.
      if (name === null) return;
      this.#close();
      this.#begin('tool_use', { id, name, input: {} });
      this.#tool = index;
      this.#arguments = '';
      this.#callsTools = true;
    }
    this.#arguments += part;
    if (part !== '') this.#delta({ type: 'input_json_delta', partial_json: part });
  }

  #say(kind: 'thinking' | 'text', delta: JsonObject): void {
    if (this.#open !== kind) {
      this.#close();
      this.#begin(kind, kind === 'thinking' ? { thinking: '' } : { text: '' });
    }
    this.#delta(delta);
  }

  #begin(kind: Kind, block: JsonObject): void {
    this.#open = kind;
    this.#add({ type: 'content_block_start', index: this.#blocks, content_block: { type: kind, ...block } });
  }

  #delta(delta: JsonObject): void {
    this.#add({ type: 'content_block_delta', index: this.#blocks, delta });
  }

  #close(): void {
    if (this.#open === null) return;
    if (this.#open === 'thinking') this.#delta({ type: 'signature_delta', signature: signatureOf(this.#callId) });
    this.#add({ type: 'content_block_stop', index: this.#blocks });
    this.#open = null;
    this.#blocks += 1;
    if (this.#waiting === '') return;
    const text = this.#waiting;
    this.#waiting = '';
    this.#say('text', { type: 'text_delta', text });
    this.#close();
  }

  #add(event: { type: string } & JsonObject): void {
    this.#events += asTypedEvent(event);
  }

  #take(): string {
    const events = this.#events;
    this.#events = '';
    return events;
  }
}
