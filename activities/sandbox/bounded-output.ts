import type { Readable } from 'node:stream';

/** Keeps the first `limit` bytes of all streams together, and reports once that there are more. */
export class BoundedOutput {
  #left: number;
  readonly #onExcess: () => void;

  constructor(limit: number, onExcess: () => void) {
    this.#left = limit;
    this.#onExcess = onExcess;
  }

  collect(stream: Readable): () => string {
    const chunks: Buffer[] = [];
    stream.on('data', (chunk: Buffer) => {
      if (this.#left > 0) chunks.push(chunk.subarray(0, this.#left));
      const before = this.#left;
      this.#left -= chunk.length;
      if (before >= 0 && this.#left < 0) this.#onExcess();
    });
    stream.on('error', () => {});
    return () => Buffer.concat(chunks).toString('utf8');
  }
}
