import type { Readable } from 'node:stream';
import { StringDecoder } from 'node:string_decoder';

export type OutputStream = 'stdout' | 'stderr';
/** Is told what a process prints, as it prints it. */
export type OnOutput = (stream: OutputStream, text: string) => void;

/** The bytes at the end of a stream that are kept of an output that was cut. The reason of a failure is usually there. */
const TAIL_BYTES = 16_384;

/**
 * Keeps the first `limit` bytes of all streams together, and reports once that there are more. Without a report it also keeps the end of
 * each stream, after a line that says how much is left out between.
 */
export class BoundedOutput {
  #left: number;
  readonly #onExcess: (() => void) | null;

  constructor(limit: number, onExcess: (() => void) | null) {
    this.#left = limit;
    this.#onExcess = onExcess;
  }

  /** `onText` is told the kept part at once, whole characters at a time. */
  collect(stream: Readable, onText?: (text: string) => void): () => string {
    const chunks: Buffer[] = [];
    let tail = Buffer.alloc(0);
    let past = 0;
    const decoder = new StringDecoder('utf8');
    stream.on('data', (chunk: Buffer) => {
      const kept = chunk.subarray(0, Math.max(0, this.#left));
      if (kept.length > 0) chunks.push(kept);
      if (onText && kept.length > 0) onText(decoder.write(kept));
      const before = this.#left;
      this.#left -= chunk.length;
      if (before >= 0 && this.#left < 0) this.#onExcess?.();
      if (this.#onExcess !== null || kept.length === chunk.length) return;
      past += chunk.length - kept.length;
      tail = Buffer.concat([tail, chunk.subarray(kept.length)]).subarray(-TAIL_BYTES);
    });
    stream.on('error', () => {});
    return () => Buffer.concat(chunks).toString('utf8') + endOf(tail, past);
  }
}

function endOf(tail: Buffer, past: number): string {
  const leftOut = past - tail.length;
  return leftOut > 0
    ? `\n[… ${leftOut} bytes of output are left out here …]\n${tail.toString('utf8')}`
    : tail.toString('utf8');
}
