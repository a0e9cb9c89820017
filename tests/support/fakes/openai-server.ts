import type { IncomingMessage, ServerResponse } from 'node:http';
import { text as textOf } from 'node:stream/consumers';
import { z } from 'zod';
import { EngineServer, json } from './engine-server.ts';

const chat = z.strictObject({
  model: z.string(),
  messages: z.array(z.looseObject({ role: z.string() })),
  tools: z.array(z.looseObject({})).optional(),
  max_tokens: z.int().optional(),
  temperature: z.number().optional(),
  top_p: z.number().optional(),
  presence_penalty: z.number().optional(),
  frequency_penalty: z.number().optional(),
  n: z.int().optional(),
  logprobs: z.boolean().optional(),
  top_logprobs: z.int().optional(),
  stream: z.boolean().optional(),
  stream_options: z.strictObject({ include_usage: z.boolean() }).optional(),
});
const completion = chat.omit({ messages: true }).extend({ prompt: z.string() });

const USAGE = { prompt_tokens: 7, completion_tokens: 2, total_tokens: 9 };
const HEAD = { id: 'c', created: 1, model: 'gpt' };

/** A server of OpenAI's completions without anything of its own: it refuses fields and routes that OpenAI does not have, and returns no ids. */
export class OpenAiServer extends EngineServer {
  /** The status with which it refuses every call. */
  status = 200;
  /** Its base path. */
  base = '/v1';
  /** The key that it wants. */
  key: string | null = null;
  /** The paths and bodies that it was asked for. */
  readonly asked: { path: string; body: unknown }[] = [];

  protected async respond(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const path = request.url ?? '';
    const sent = await textOf(request);
    const { authorization = '' } = request.headers;
    if (this.key !== null && authorization !== `Bearer ${this.key}`)
      return json(response, { error: { message: `Incorrect API key provided: ${authorization}` } }, 401);
    if (request.method === 'GET' && path === `${this.base}/models`)
      return json(response, { object: 'list', data: [{ id: 'gpt', object: 'model', created: 5, owned_by: 'x' }] });
    this.asked.push({ path, body: sent === '' ? null : JSON.parse(sent) });
    const isChat = path === `${this.base}/chat/completions`;
    if (!isChat && path !== `${this.base}/completions`)
      return json(response, { error: { message: `no route ${path}` } }, 404);
    const { data, error } = (isChat ? chat : completion).safeParse(JSON.parse(sent));
    if (!data) return json(response, { error: { message: z.prettifyError(error) } }, 400);
    if (this.status !== 200) return json(response, { error: { message: 'on purpose' } }, this.status);
    const replies = Array.from({ length: data.n ?? 1 }, (_, index) => index);
    const reply = (index: number) =>
      isChat ? { index, message: { role: 'assistant', content: 'Hello 🦀' } } : { index, text: 'Hello 🦀' };
    if (data.stream !== true)
      return json(response, {
        ...HEAD,
        object: isChat ? 'chat.completion' : 'text_completion',
        choices: replies.map((index) => ({ ...reply(index), finish_reason: 'stop' })),
        usage: USAGE,
      });
    const object = isChat ? 'chat.completion.chunk' : 'text_completion';
    const part = (content: string) => (isChat ? { delta: { content } } : { text: content });
    const chunks = [
      ...['Hello', ' 🦀'].flatMap((content) =>
        replies.map((index) => ({ ...HEAD, object, choices: [{ index, ...part(content), finish_reason: null }] })),
      ),
      ...replies.map((index) => ({ ...HEAD, object, choices: [{ index, ...part(''), finish_reason: 'stop' }] })),
      ...(data.stream_options?.include_usage ? [{ ...HEAD, object, choices: [], usage: USAGE }] : []),
    ];
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    for (const chunk of [...chunks.map((each) => JSON.stringify(each)), '[DONE]']) response.write(`data: ${chunk}\n\n`);
    response.end();
  }
}
