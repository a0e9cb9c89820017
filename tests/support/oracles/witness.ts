import { setTimeout as sleep } from 'node:timers/promises';
import { eq } from 'drizzle-orm';
import { z } from 'zod';
import { connectionsOf } from '../../../cli/config/connections.ts';
import type { Deployment } from '../../../cli/config/schema.ts';
import type { Database } from '../../../store/database.ts';
import { calls } from '../../../store/schema.ts';

const opened = z.object({ api_key: z.string() });
const reply = z.object({ id: z.string() });

/** An agent outside every run that makes calls all the time and keeps the id of each reply that it received to its end. */
export class Witness {
  readonly #seen: string[] = [];
  readonly #stop = new AbortController();
  readonly #done: Promise<void>;

  /** `name` is the prefix of its sessions' ids. */
  constructor({ config }: { config: Deployment }, { name = 'witness', everyMs = 2000 } = {}) {
    const { gatewayUrl, adminKey } = connectionsOf(config);
    this.#done = this.#ask(gatewayUrl, adminKey, { name, everyMs });
  }

  /** Stops the agent and returns the ids of the replies that it received to their end. */
  async stop(): Promise<string[]> {
    this.#stop.abort();
    await this.#done;
    return this.#seen;
  }

  async #ask(
    gatewayUrl: string,
    adminKey: string,
    { name, everyMs }: { name: string; everyMs: number },
  ): Promise<void> {
    for (let serial = 0; !this.#stop.signal.aborted; serial++) {
      try {
        const { api_key } = opened.parse(await this.#post(`${gatewayUrl}/sessions/${name}-${serial}`, adminKey, {}));
        const messages = [{ role: 'user', content: 'Say one word.' }];
        const url = `${gatewayUrl}/${name}-${serial}/v1/chat/completions`;
        this.#seen.push(reply.parse(await this.#post(url, api_key, { model: 'any', messages, max_tokens: 4 })).id);
      } catch {
        // No answer, an error, or a cut reply: this agent did not receive the call to its end.
      }
      await sleep(everyMs);
    }
  }

  async #post(url: string, key: string, body: object): Promise<unknown> {
    const response = await fetch(url, {
      method: 'POST',
      headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
      body: JSON.stringify(body),
      signal: AbortSignal.any([this.#stop.signal, AbortSignal.timeout(30_000)]),
    });
    if (!response.ok) throw new Error(`status ${response.status}`);
    return response.json();
  }
}

/** Returns those of the ids that a witness saw for which there is no completed call in the record. */
export async function unrecorded(db: Database, seen: readonly string[]): Promise<string[]> {
  const recorded = await db.select({ response: calls.response }).from(calls).where(eq(calls.status, 'completed'));
  const ids = new Set(recorded.map(({ response }) => String(JSON.parse(response?.toString() ?? '{}').id)));
  return seen.filter((id) => !ids.has(id));
}
