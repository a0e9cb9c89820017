import { setTimeout as sleep } from 'node:timers/promises';
import { z } from 'zod';
import { connectionsOf } from '../config/connections.ts';
import type { TestDeployment } from './deployment.ts';

const opened = z.object({ api_key: z.string() });
const reply = z.object({ id: z.string() });

/** An agent outside every run that keeps asking, and remembers each reply that it saw end. */
export class Witness {
  readonly #seen: string[] = [];
  readonly #stop = new AbortController();
  readonly #done: Promise<void>;

  constructor(deployment: TestDeployment) {
    const { gatewayUrl, adminKey } = connectionsOf(deployment.config);
    this.#done = this.#ask(gatewayUrl, adminKey);
  }

  /** Ids of the replies that it saw end. */
  async stop(): Promise<string[]> {
    this.#stop.abort();
    await this.#done;
    return this.#seen;
  }

  async #ask(gatewayUrl: string, adminKey: string): Promise<void> {
    for (let serial = 0; !this.#stop.signal.aborted; serial++) {
      try {
        const { api_key } = opened.parse(await this.#post(`${gatewayUrl}/sessions/witness-${serial}`, adminKey, {}));
        const messages = [{ role: 'user', content: 'Say one word.' }];
        const url = `${gatewayUrl}/witness-${serial}/v1/chat/completions`;
        this.#seen.push(reply.parse(await this.#post(url, api_key, { model: 'any', messages, max_tokens: 4 })).id);
      } catch {
        // Nothing answered, or the answer was an error or was cut: that call did not end for this agent.
      }
      await sleep(2000);
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
