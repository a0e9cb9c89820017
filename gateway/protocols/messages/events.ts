import type { TokenChunk } from '../../engines/engine.ts';
import type { Failure } from '../../failure.ts';
import { parseObject, type JsonObject } from '../../json.ts';
import { asTypedEvent } from '../../reply-formats.ts';
import { CallsInOrder } from '../calls-in-order.ts';
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
  readonly #calls = new CallsInOrder();
  /** Texts and thinking that came while a tool call was open, which may continue. */
  #waiting: { kind: 'thinking' | 'text'; text: string }[] = [];
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
    this.#sayOrWait('thinking', reasoning);
    this.#sayOrWait('text', text);
    for (const tool of tools) for (const part of this.#calls.add(tool)) this.#call(part);
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
    for (const part of this.#calls.end()) this.#call(part);
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
      this.#close();
      this.#begin('tool_use', { id, name, input: {} });
      this.#tool = index;
      this.#arguments = '';
      this.#callsTools = true;
    }
    this.#arguments += part;
    if (part !== '') this.#delta({ type: 'input_json_delta', partial_json: part });
  }

  #sayOrWait(kind: 'thinking' | 'text', text: string): void {
    if (text === '') return;
    if (this.#open === 'tool_use') this.#waiting.push({ kind, text });
    else this.#say(kind, text);
  }

  #say(kind: 'thinking' | 'text', text: string): void {
    if (this.#open !== kind) {
      this.#close();
      this.#begin(kind, { [kind]: '' });
    }
    this.#delta({ type: `${kind}_delta`, [kind]: text });
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
    const waited = this.#waiting;
    this.#waiting = [];
    for (const { kind, text } of waited) this.#say(kind, text);
    if (waited.length > 0) this.#close();
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
