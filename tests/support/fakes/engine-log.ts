import { EventEmitter, once } from 'node:events';
import { setTimeout as pause } from 'node:timers/promises';
import type { TokenEngine } from './token-engine.ts';

/** One reply: its request, its text, and whether all of it was sent. */
export type SampledReply = { request: string; text: string; finished: boolean };

/** Logs what engines were asked to sample and what they sent. No two replies have the same text. */
export class EngineLog {
  readonly sampled: SampledReply[] = [];
  readonly #events = new EventEmitter();

  /** Logs this engine. Each of its routes takes up to `busyMs`. */
  keep(engine: TokenEngine, busyMs: number): void {
    engine.before = async ({ path, body, response }) => {
      if (body.cue && (path === '/v1/chat/completions' || path === '/inference/v1/generate')) {
        const entry = { request: body.cue.log, text: `no ${this.sampled.length}`, finished: false };
        body.cue.lines = [{ text: entry.text }];
        this.sampled.push(entry);
        response.on('close', () => {
          entry.finished = response.writableFinished;
          if (entry.finished) this.#events.emit('finished');
        });
      }
      await pause(Math.random() * busyMs);
    };
  }

  /** Resolves when the next reply was sent whole. */
  async finish(): Promise<void> {
    await once(this.#events, 'finished');
  }
}
