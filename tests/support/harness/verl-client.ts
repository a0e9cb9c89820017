import { z } from 'zod';

const state = z.object({ session_id: z.string(), status: z.string(), attempt: z.number().optional() });
const record = z.object({
  session_id: z.string(),
  turns: z.array(
    z.object({
      request_messages: z.array(z.record(z.string(), z.unknown())),
      completion_text: z.string(),
      completion_token_ids: z.array(z.int()),
      completion_logprobs: z.array(z.number()),
      finish_reason: z.string().nullable(),
      tool_calls: z.array(z.record(z.string(), z.unknown())).nullable(),
    }),
  ),
  created_at: z.number(),
  completed: z.boolean(),
});

/** Makes the requests of verl-recipe PR 83's agent loop to a proxy: without a key or a body, and 404 means that there is no such session. */
export class VerlClient {
  readonly #url: string;

  constructor(url: string) {
    this.#url = url;
  }

  register = (id: string) => this.#ask('POST', id, state);
  complete = (id: string) => this.#ask('POST', `${id}/complete`, state);
  delete = (id: string) => this.#ask('DELETE', id, state);

  async get(id: string) {
    const reply = await fetch(`${this.#url}/sessions/${id}`);
    if (reply.status !== 404) return record.parse(await reply.json());
    z.object({ detail: z.literal('Session not found') }).parse(await reply.json());
    return null;
  }

  async #ask<T extends z.ZodType>(method: string, path: string, shape: T): Promise<z.output<T>> {
    const reply = await fetch(`${this.#url}/sessions/${path}`, { method });
    if (!reply.ok) throw new Error(`${method} ${path}: ${reply.status}`);
    return shape.parse(await reply.json());
  }
}
