export type EngineRequest = { path: string; body: Buffer };

const HEAD_END = Buffer.from('\r\n\r\n');
const LAST_CHUNK = Buffer.from('\r\n0\r\n\r\n');

/** Takes requests out of a connection's bytes. A chunked body is not decoded, because only its text is searched. */
export class Requests {
  #parts: Buffer[] = [];
  #size = 0;
  /** The least number of bytes of the request under way. Parts are joined only when they are there, because earlier joins would copy a large body many times. */
  #needed = 0;

  *take(data: Buffer): Generator<EngineRequest> {
    this.#parts.push(data);
    this.#size += data.length;
    if (this.#size < this.#needed) return;
    let bytes = this.#parts.length === 1 ? data : Buffer.concat(this.#parts);
    this.#keep([]);
    while (bytes.length > 0) {
      const headEnd = bytes.indexOf(HEAD_END);
      const end = headEnd < 0 ? null : bodyEnd(bytes, headEnd + HEAD_END.length);
      if (end === null || end > bytes.length) return this.#keep([bytes], end ?? 0);
      const pathAt = bytes.indexOf(32) + 1;
      yield {
        path: bytes.toString('latin1', pathAt, bytes.indexOf(32, pathAt)),
        body: bytes.subarray(headEnd + HEAD_END.length, end),
      };
      bytes = bytes.subarray(end);
    }
  }

  #keep(parts: Buffer[], needed = 0): void {
    this.#parts = parts;
    this.#size = parts.reduce((sum, { length }) => sum + length, 0);
    this.#needed = needed;
  }
}

/** Returns the end of the body that begins at `start`, or null while a chunked body is incomplete. */
function bodyEnd(bytes: Buffer, start: number): number | null {
  const head = bytes.toString('latin1', 0, start);
  const length = /\r\ncontent-length: *(\d+)/i.exec(head)?.[1];
  if (length !== undefined) return start + Number(length);
  if (!/\r\ntransfer-encoding: *chunked/i.test(head)) return start;
  const last = bytes.indexOf(LAST_CHUNK, start);
  return last < 0 ? null : last + LAST_CHUNK.length;
}
