import type { Readable } from 'node:stream';
import { StringDecoder } from 'node:string_decoder';

export type OutputStream = 'stdout' | 'stderr';
/** Is told what a process prints, as it prints it. */
export type OnOutput = (stream: OutputStream, text: string) => void;

/** Keeps the first `limit` bytes of all streams together, and reports once that there are more. */
export class BoundedOutput {
  #left: number;
  readonly #onExcess: () => void;

  constructor(limit: number, onExcess: () => void) {
    this.#left = limit;
    this.#onExcess = onExcess;
  }

  /** `onText` is told the kept part at once, whole characters at a time. */
  collect(stream: Readable, onText?: (text: string) => void): () => string {
    const chunks: Buffer[] = [];
    const decoder = new StringDecoder('utf8');
    stream.on('data', (chunk: Buffer) => {
      const kept = chunk.subarray(0, Math.max(0, this.#left));
      if (kept.length > 0) chunks.push(kept);
      if (onText && kept.length > 0) onText(decoder.write(kept));
      const before = this.#left;
      this.#left -= chunk.length;
      if (before >= 0 && this.#left < 0) this.#onExcess();
    });
    stream.on('error', () => {});
    return () => Buffer.concat(chunks).toString('utf8');
  }
}
